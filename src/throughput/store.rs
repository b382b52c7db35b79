//! Rates on disk: one small file for each device, driver and version of the probes.
//!
//! The file is a convenience. Whatever is wrong with it, the device is measured again.

use super::{ThroughputKey, ThroughputValue};
use crate::client::Client;
use serde::{Deserialize, Serialize};
use std::any::TypeId;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::time::Duration;
use vkactor_vulkan::Vulkan;

/// Counts the changes of the probes within a version: what others have measured is not found.
const PROBES: u32 = 2;

/// Where the rates of one device are.
pub(super) struct Store {
    path: PathBuf,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Kept {
    amount: f64,
    nanos: u64,
}

impl Store {
    /// The store of the device behind `client`. `None` where the device is not one of the listed ones, so that its
    /// name and driver are not known, or where there is no cache folder.
    pub(super) fn of(client: &Client) -> Option<Self> {
        let service = client.service_id();
        if service.service != TypeId::of::<Vulkan>() {
            return None;
        }
        let devices = vkactor_vulkan::list(false).ok()?;
        let device = devices.into_iter().find(|device| device.id == service.device)?;
        let mut hasher = DefaultHasher::new();
        (&device.name, &device.driver, device.uuid, device.memory).hash(&mut hasher);
        // The bounds check costs some devices a part of their rate.
        client.target_properties().bounds_check.hash(&mut hasher);
        let name = format!("{}.{PROBES}-{:016x}.json", env!("CARGO_PKG_VERSION"), hasher.finish());
        Some(Self { path: cache_folder()?.join("vkactor").join("throughput").join(name) })
    }

    pub(super) fn find(&self, key: ThroughputKey) -> Option<ThroughputValue> {
        let kept = self.all().get(&name_of(key)).copied()?;
        let value = ThroughputValue { amount: kept.amount, duration: Duration::from_nanos(kept.nanos) };
        let rate = value.per_second();
        (rate.is_finite() && rate > 0.0).then_some(value)
    }

    /// Two processes that keep at once may lose one of the values: it is measured again.
    pub(super) fn keep(&self, key: ThroughputKey, value: ThroughputValue) {
        let nanos = u64::try_from(value.duration.as_nanos()).unwrap_or(u64::MAX);
        let mut all = self.all();
        all.insert(name_of(key), Kept { amount: value.amount, nanos });
        if let Err(error) = self.replace(&all) {
            tracing::debug!(%error, path = %self.path.display(), "a rate was not kept on disk");
        }
    }

    fn all(&self) -> BTreeMap<String, Kept> {
        let text = std::fs::read(&self.path).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Readers find the old file or the new one, never a part.
    fn replace(&self, all: &BTreeMap<String, Kept>) -> std::io::Result<()> {
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let beside = self.path.with_extension(format!("{}.tmp", std::process::id()));
        std::fs::write(&beside, serde_json::to_vec_pretty(all)?)?;
        std::fs::rename(&beside, &self.path)
    }
}

fn name_of(key: ThroughputKey) -> String {
    format!("{:?} {:?}", key.mode, key.dtype)
}

/// The folder where this user's programs keep what can be made again.
fn cache_folder() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if cfg!(windows) {
        variable("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        variable("HOME").map(|home| home.join("Library").join("Caches"))
    } else {
        variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::throughput::ThroughputMode;
    use vkactor_actors::properties::ElemType;

    #[test]
    fn a_value_is_found_again_and_a_damaged_file_holds_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store { path: folder.path().join("deep").join("rates.json") };
        let key = ThroughputKey { mode: ThroughputMode::MemoryRead, dtype: ElemType::F32 };
        let value = ThroughputValue { amount: 3e11, duration: Duration::from_nanos(20_000_001) };
        assert_eq!(store.find(key), None);
        store.keep(key, value);
        assert_eq!(store.find(key), Some(value));
        assert_eq!(store.find(ThroughputKey { dtype: ElemType::U32, ..key }), None);
        std::fs::write(&store.path, b"{ damaged").unwrap();
        assert_eq!(store.find(key), None);
        store.keep(key, value);
        assert_eq!(store.find(key), Some(value));
    }

    #[test]
    fn a_rate_that_is_none_is_not_found() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store { path: folder.path().join("rates.json") };
        let key = ThroughputKey { mode: ThroughputMode::Launch, dtype: ElemType::F32 };
        store.keep(key, ThroughputValue { amount: 1.0, duration: Duration::ZERO });
        assert_eq!(store.find(key), None);
    }
}
