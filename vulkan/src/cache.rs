//! Compiled pipelines kept between runs, in one file for each device and driver.

use crate::device::DeviceShared;
use crate::plan::CacheKey;
use ash::vk;
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What a file starts with; the number changes with the form.
const MAGIC: [u8; 8] = *b"vkactor1";
/// Magic, checksum, and number of bytes behind.
const HEADER: usize = 24;
/// Bytes of Vulkan's own header at the start of a driver's data.
const DRIVER_HEADER: usize = 32;
/// Larger files are not read: no set of kernels comes near.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// How often a running process writes the file. The last state is written when the device goes.
const SAVE_INTERVAL: Duration = Duration::from_secs(30);

/// The driver's pipeline cache and the file that it is kept in. The driver orders simultaneous use by itself.
pub(crate) struct PipelineCache {
    raw: vk::PipelineCache,
    path: Option<PathBuf>,
    /// Pipelines were made since the last save.
    changed: AtomicBool,
    saved: Mutex<Instant>,
    shared: Arc<DeviceShared>,
}

impl PipelineCache {
    /// The cache of the device `key`, filled from the file in `directory` where that has one that fits.
    pub(crate) fn open(shared: Arc<DeviceShared>, directory: Option<&Path>, key: &CacheKey) -> Self {
        let path = directory.map(|directory| directory.join(file_name(key)));
        let stored = path.as_deref().and_then(|path| match load(path, key) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                tracing::debug!("pipeline cache {}: {error}", path.display());
                None
            }
        });
        let create = |bytes: &[u8]| {
            let create = vk::PipelineCacheCreateInfo::default().initial_data(bytes);
            // SAFETY: V1, V5. The data is what this driver gave, by its header and our checksum.
            unsafe { shared.raw().create_pipeline_cache(&create, None) }
        };
        let raw = create(stored.as_deref().unwrap_or_default()).or_else(|_| create(&[]));
        // Without a cache everything works, and compiles anew.
        let raw = raw.unwrap_or_default();
        Self { raw, path, changed: AtomicBool::new(false), saved: Mutex::new(Instant::now()), shared }
    }

    pub(crate) fn raw(&self) -> vk::PipelineCache {
        self.raw
    }

    /// A pipeline was made. Writes the file if that has not been done for a while.
    pub(crate) fn grown(&self) {
        self.changed.store(true, Ordering::Relaxed);
        let due = |saved: &Instant| saved.elapsed() >= SAVE_INTERVAL;
        if let Ok(mut saved) = self.saved.try_lock()
            && due(&saved)
        {
            self.save();
            *saved = Instant::now();
        }
    }

    fn save(&self) {
        let Some(path) = self.path.as_deref().filter(|_| self.raw != vk::PipelineCache::null()) else { return };
        if !self.changed.swap(false, Ordering::Relaxed) {
            return;
        }
        // SAFETY: V1.
        let stored = match unsafe { self.shared.raw().get_pipeline_cache_data(self.raw) } {
            Ok(bytes) => store(path, &bytes),
            Err(error) => Err(io::Error::other(crate::error::describe(error))),
        };
        if let Err(error) = stored {
            // A directory that cannot be written is no reason to fail.
            tracing::debug!("pipeline cache {}: {error}", path.display());
        }
    }
}

impl fmt::Debug for PipelineCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipelineCache").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Drop for PipelineCache {
    fn drop(&mut self) {
        self.save();
        // SAFETY: V1; nothing compiles any more, as the compiler owns the cache. Null is allowed.
        unsafe { self.shared.raw().destroy_pipeline_cache(self.raw, None) };
    }
}

/// Where pipelines are kept if nobody says otherwise: `vkactor` in the user's directory for caches.
pub(crate) fn default_directory() -> Option<PathBuf> {
    let of = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base =
        of("XDG_CACHE_HOME").or_else(|| of("HOME").map(|home| home.join(".cache"))).or_else(|| of("LOCALAPPDATA"));
    base.map(|base| base.join("vkactor"))
}

/// One file for each device and driver, so that two of them do not take turns in overwriting one.
fn file_name(key: &CacheKey) -> String {
    let uuid: String = key.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{:04x}-{:04x}-{:08x}-{uuid}.pipelines", key.vendor, key.device, key.driver)
}

/// The driver's data in a file, if it is whole and from this driver.
fn load(path: &Path, key: &CacheKey) -> io::Result<Vec<u8>> {
    if std::fs::metadata(path)?.len() > FILE_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut file = std::fs::read(path)?;
    match contents(&file) {
        Some(bytes) if fits(bytes, key) => {
            file.drain(..HEADER);
            Ok(file)
        }
        Some(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "made by another driver")),
        None => Err(io::Error::new(io::ErrorKind::InvalidData, "damaged")),
    }
}

/// Writes beside the file, then puts it in place: a reader sees the old or the new one, whole.
fn store(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    // Other processes write this file too, and so may other devices of this one.
    static WRITES: AtomicU64 = AtomicU64::new(0);
    let number = WRITES.fetch_add(1, Ordering::Relaxed);
    let beside = path.with_extension(format!("{}-{number}.tmp", std::process::id()));
    let write = || {
        let mut file = std::fs::File::create(&beside)?;
        file.write_all(&header(bytes))?;
        file.write_all(bytes)?;
        drop(file);
        std::fs::rename(&beside, path)
    };
    let written = write();
    if written.is_err() {
        // Half a file is of no use, and where even this fails there is none.
        let _gone = std::fs::remove_file(&beside);
    }
    written
}

fn header(bytes: &[u8]) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&MAGIC);
    header[8..16].copy_from_slice(&checksum(bytes).to_le_bytes());
    header[16..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    header
}

/// What lies behind the header, if it is what the header says.
fn contents(file: &[u8]) -> Option<&[u8]> {
    let (start, bytes) = file.split_first_chunk::<HEADER>()?;
    (*start == header(bytes)).then_some(bytes)
}

/// Whether a driver's data starts with a header of this device and driver (Vulkan 1.3, 10.7.4).
fn fits(bytes: &[u8], key: &CacheKey) -> bool {
    let word = |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
    let version = vk::PipelineCacheHeaderVersion::ONE.as_raw() as u32;
    word(0).is_some_and(|length| length as usize >= DRIVER_HEADER)
        && word(4) == Some(version)
        && word(8) == Some(key.vendor)
        && word(12) == Some(key.device)
        && bytes.get(16..DRIVER_HEADER) == Some(&key.uuid[..])
}

/// FNV-1a, 64 bits, over words: it finds damage, and is not meant to withstand malice.
fn checksum(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x0000_0100_0000_01B3);
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    words.fold(0xCBF2_9CE4_8422_2325, mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: CacheKey = CacheKey { vendor: 0x10de, device: 0x2335, driver: 7, uuid: [9; 16] };

    fn driver_data() -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [32, 1, KEY.vendor, KEY.device] {
            bytes.extend(u32::to_le_bytes(word));
        }
        bytes.extend(KEY.uuid);
        bytes.extend((0..1000u32).flat_map(u32::to_le_bytes));
        bytes
    }

    fn with_directory(check: impl Fn(&Path)) {
        let directory = std::env::temp_dir().join(format!("vkactor-cache-{}", std::process::id()));
        check(&directory.join(format!("{:?}", std::thread::current().id())).join("deep"));
        let _gone = std::fs::remove_dir_all(directory);
    }

    #[test]
    fn what_is_stored_is_loaded() {
        with_directory(|directory| {
            let path = directory.join(file_name(&KEY));
            store(&path, &driver_data()).unwrap();
            store(&path, &driver_data()).unwrap();
            assert_eq!(load(&path, &KEY).unwrap(), driver_data());
            assert_eq!(std::fs::read_dir(directory).unwrap().count(), 1, "nothing is left beside");
        });
    }

    #[test]
    fn damaged_and_foreign_files_are_refused() {
        let whole = [&header(&driver_data())[..], &driver_data()].concat();
        assert!(contents(&whole).is_some());
        for cut in [0, 5, HEADER, HEADER + 1, whole.len() - 1] {
            assert!(contents(&whole[..cut]).is_none_or(|bytes| !fits(bytes, &KEY)), "cut at {cut}");
        }
        for flip in [0, 9, 17, HEADER, HEADER + 13, whole.len() - 1] {
            let mut file = whole.clone();
            file[flip] ^= 0x10;
            assert!(contents(&file).is_none(), "flipped at {flip}");
        }
        for foreign in [CacheKey { vendor: 1, ..KEY }, CacheKey { device: 1, ..KEY }, CacheKey { uuid: [8; 16], ..KEY }]
        {
            assert!(!fits(&driver_data(), &foreign));
            assert_ne!(file_name(&KEY), file_name(&foreign));
        }
    }

    #[test]
    fn a_place_that_cannot_be_written_is_an_error_and_no_more() {
        assert!(store(Path::new("/proc/no/such/place/file"), b"x").is_err());
        assert!(load(Path::new("/proc/no/such/place/file"), &KEY).is_err());
    }
}
