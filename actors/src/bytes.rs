//! Bytes on the host: owned, pinned for a device, in a file, or still on a device.

use crate::error::{IoError, ServerError};
use crate::message::Incoming;
use crate::wait::block_on;
use bytes::Bytes as Shared;
use std::fmt;
use std::future::Future;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// Where the bytes lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocationProperty {
    /// In ordinary host memory.
    Native,
    /// In host memory that a device reads and writes by itself.
    Pinned,
    /// On a device, until first looked at.
    Lazy,
    /// In a file, until first looked at.
    File,
}

/// A run of host memory that a device can reach. It stays mapped, and unchanged, while this value lives.
pub trait Pinned: Send + Sync + 'static {
    /// The bytes.
    fn as_slice(&self) -> &[u8];
    /// Where the bytes lie in the pages of the actor `actor`, or `None` if it did not make them.
    fn place(&self, actor: crate::id::ActorId) -> Option<crate::port::Span>;
    /// Where the bytes lie in memory that other devices may take in, if they do. The bytes keep the maker's hold of it.
    fn region(&self) -> Option<crate::region::RegionSpan>;
}

/// Where lazy bytes come from.
pub trait LazySource: Send + Sync + 'static {
    /// Bytes that `read` will give.
    fn byte_count(&self) -> usize;
    /// Reads the bytes as they are now.
    fn read(&self) -> Pin<Box<dyn Future<Output = Result<Bytes, ServerError>> + Send>>;
}

/// Bytes on the host. Cloning shares them.
///
/// Reading them as a slice fills in bytes that are lazy or in a file, which blocks the thread; this is safe
/// inside a runtime.
///
/// # Panics
/// The `Deref` to a slice panics where lazy bytes cannot be had: [`Bytes::try_materialize`] gives the error instead.
#[derive(Clone, Default)]
pub struct Bytes(Repr);

#[derive(Clone)]
enum Repr {
    Native(Shared),
    Pinned(Arc<dyn Pinned>),
    Late(Arc<Late>),
}

impl Default for Repr {
    fn default() -> Self {
        Self::Native(Shared::new())
    }
}

/// Bytes that are fetched once, when first looked at. A failure is not kept: the next look tries again.
struct Late {
    source: Source,
    len: usize,
    found: OnceCell<Bytes>,
}

enum Source {
    Device(Box<dyn LazySource>),
    File { path: PathBuf, offset: u64 },
}

/// Bytes as a message takes them: the caller waits for none.
#[derive(Debug)]
pub enum Delivery {
    /// They are at hand.
    Here(Bytes),
    /// They have to be fetched first.
    Later(Incoming),
}

impl Bytes {
    /// The bytes of these elements. No copy is made where elements are bytes.
    pub fn from_elems<E: bytemuck::NoUninit>(elems: Vec<E>) -> Self {
        match bytemuck::try_cast_vec::<E, u8>(elems) {
            Ok(bytes) => Self::from(bytes),
            Err((_, elems)) => Self::from(bytemuck::cast_slice::<E, u8>(&elems).to_vec()),
        }
    }

    /// `len` bytes of a file from `offset`, read when first looked at.
    ///
    /// # Errors
    /// What opening the file gives.
    pub fn from_file(path: impl Into<PathBuf>, offset: u64, len: u64) -> std::io::Result<Self> {
        let path = path.into();
        std::fs::File::open(&path)?;
        let len = usize::try_from(len).map_err(|_| std::io::Error::from(std::io::ErrorKind::FileTooLarge))?;
        Ok(Self(Repr::Late(Arc::new(Late { source: Source::File { path, offset }, len, found: OnceCell::new() }))))
    }

    /// Bytes that a device can reach.
    pub fn from_pinned(pinned: Arc<dyn Pinned>) -> Self {
        Self(Repr::Pinned(pinned))
    }

    /// Bytes that `source` gives when they are first looked at.
    pub fn from_lazy(source: impl LazySource) -> Self {
        let len = source.byte_count();
        let source = Source::Device(Box::new(source));
        Self(Repr::Late(Arc::new(Late { source, len, found: OnceCell::new() })))
    }

    /// Where the bytes lie. Lazy bytes stay `Lazy`, and those of a file `File`, after they were looked at.
    pub fn property(&self) -> AllocationProperty {
        match &self.0 {
            Repr::Native(_) => AllocationProperty::Native,
            Repr::Pinned(_) => AllocationProperty::Pinned,
            Repr::Late(late) => match late.source {
                Source::Device(_) => AllocationProperty::Lazy,
                Source::File { .. } => AllocationProperty::File,
            },
        }
    }

    /// How many bytes there are. Lazy bytes know it without a copy.
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Native(bytes) => bytes.len(),
            Repr::Pinned(pinned) => pinned.as_slice().len(),
            Repr::Late(late) => late.len,
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pinned memory of these bytes, where there is any.
    pub fn pinned(&self) -> Option<&Arc<dyn Pinned>> {
        match &self.0 {
            Repr::Pinned(pinned) => Some(pinned),
            Repr::Late(late) => late.found.get().and_then(Self::pinned),
            Repr::Native(_) => None,
        }
    }

    /// The bytes, fetched first if they are lazy. Blocks meanwhile; safe inside a runtime.
    ///
    /// # Errors
    /// What the read of the device or the file ended with. The next call tries again.
    pub fn try_materialize(&self) -> Result<&[u8], ServerError> {
        match &self.0 {
            Repr::Native(_) | Repr::Pinned(_) => Ok(self.present()),
            Repr::Late(late) => Ok(block_on(late.found.get_or_try_init(|| late.source.fetch(late.len)))?.present()),
        }
    }

    /// As [`Bytes::try_materialize`], as a future. Bytes of a file are read where the future is polled.
    ///
    /// # Cancellation
    /// A dropped future leaves the bytes as they were.
    ///
    /// # Errors
    /// As [`Bytes::try_materialize`].
    #[expect(clippy::manual_async_fn, reason = "the signature promises that the future is Send")]
    pub fn materialize_async(&self) -> impl Future<Output = Result<&[u8], ServerError>> + Send {
        async move {
            match &self.0 {
                Repr::Native(_) | Repr::Pinned(_) => Ok(self.present()),
                Repr::Late(late) => Ok(late.found.get_or_try_init(|| late.source.fetch(late.len)).await?.present()),
            }
        }
    }

    /// The same bytes as shared bytes. Pinned memory is kept, not copied.
    ///
    /// # Panics
    /// As the `Deref`.
    pub fn into_bytes(self) -> Shared {
        self.force();
        match self.0 {
            Repr::Native(bytes) => bytes,
            Repr::Pinned(_) | Repr::Late(_) => Shared::from_owner(Owner(self)),
        }
    }

    /// The bytes for a message. A read of a device is sent before this returns; a file is not opened yet.
    ///
    /// What is fetched for a message is not kept here: looking at a clone of lazy bytes fetches them once more.
    pub fn deliver(self) -> Delivery {
        let Repr::Late(late) = &self.0 else { return Delivery::Here(self) };
        if let Some(found) = late.found.get() {
            return Delivery::Here(found.clone());
        }
        let len = late.len;
        Delivery::Later(match &late.source {
            Source::Device(source) => Incoming::Future(source.read()),
            Source::File { path, offset } => {
                let (path, offset) = (path.clone(), *offset);
                Incoming::Blocking(Box::new(move || read_file(&path, offset, len)))
            }
        })
    }

    /// The bytes as a vector of elements.
    ///
    /// # Errors
    /// The bytes themselves, where their length is not a multiple of the element's size.
    ///
    /// # Panics
    /// As the `Deref`.
    pub fn try_into_vec<E: bytemuck::AnyBitPattern + bytemuck::NoUninit>(self) -> Result<Vec<E>, Self> {
        let bytes: &[u8] = &self;
        let size = size_of::<E>();
        if size == 0 || !bytes.len().is_multiple_of(size) {
            return Err(self);
        }
        Ok(bytemuck::pod_collect_to_vec(bytes))
    }

    /// The bytes of a representation that has them at hand.
    fn present(&self) -> &[u8] {
        match &self.0 {
            Repr::Native(bytes) => bytes,
            Repr::Pinned(pinned) => pinned.as_slice(),
            Repr::Late(late) => late.found.get().map_or(&[], Self::present),
        }
    }

    fn force(&self) -> &[u8] {
        match self.try_materialize() {
            Ok(bytes) => bytes,
            Err(error) => panic!("lazy bytes cannot be had: {error}"),
        }
    }
}

impl Source {
    async fn fetch(&self, len: usize) -> Result<Bytes, ServerError> {
        match self {
            Self::Device(source) => source.read().await,
            Self::File { path, offset } => read_file(path, *offset, len),
        }
    }
}

fn read_file(path: &Path, offset: u64, len: usize) -> Result<Bytes, ServerError> {
    let read = || {
        let mut file = std::fs::File::open(path)?;
        file.seek(SeekFrom::Start(offset))?;
        let mut bytes = vec![0; len];
        file.read_exact(&mut bytes)?;
        Ok(bytes)
    };
    read()
        .map(Bytes::from)
        .map_err(|e: std::io::Error| IoError::File(format!("{}: {len} bytes at {offset}: {e}", path.display())).into())
}

struct Owner(Bytes);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        self.0.present()
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.force()
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Repr::Native(bytes.into()))
    }
}

impl From<Shared> for Bytes {
    fn from(bytes: Shared) -> Self {
        Self(Repr::Native(bytes))
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bytes").field("len", &self.len()).field("property", &self.property()).finish()
    }
}
