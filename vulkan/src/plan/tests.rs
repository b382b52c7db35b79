use super::*;
use vk::MemoryPropertyFlags as F;
use vk::QueueFlags as Q;

const LOCAL: F = F::DEVICE_LOCAL;
const WISHES: Wishes = Wishes { bounds_check: true, push_descriptors: true, host_import: true };

fn host() -> F {
    F::HOST_VISIBLE | F::HOST_COHERENT
}

fn family(flags: Q, timestamp_bits: u32) -> Family {
    Family { flags, count: 1, timestamp_bits }
}

fn device(families: Vec<Family>, types: &[(F, u32)], heaps: &[u64]) -> Snapshot {
    Snapshot {
        name: "made up".into(),
        kind: DeviceKind::DiscreteGpu,
        driver: "none".into(),
        driver_id: vk::DriverId::NVIDIA_PROPRIETARY,
        uuid: [0; 16],
        api: (1, 3),
        extensions: [extensions::PUSH_DESCRIPTOR.to_owned(), extensions::ROBUSTNESS2.to_owned()].into(),
        families,
        types: types.iter().map(|&(flags, heap)| MemoryType { flags, heap }).collect(),
        heaps: heaps.iter().map(|&bytes| Heap { bytes, budget: None }).collect(),
        features: Features { timeline: true, robust_access: true, robust_access2: true, ..Features::default() },
        limits: Limits {
            push: 256,
            import_alignment: 4096,
            storage_alignment: 4,
            atom: 64,
            allocation_count: 4096,
            allocation: 1 << 32,
            buffer: 1 << 40,
            binding: u64::from(u32::MAX),
            binding_count: 1 << 20,
            pushed_count: 32,
            shared: 49152,
            groups: [u32::MAX, 65535, 65535],
            units: 1024,
            dim: [1024, 1024, 64],
            subgroup: [32, 32, 32],
            subgroups: true,
            tick_ns: 1.0,
        },
        cache: CacheKey { vendor: 1, device: 2, driver: 3, uuid: [4; 16] },
        matrix: Vec::new(),
    }
}

/// The memory of an NVIDIA card: local, host, host cached, and a window of 256 MiB into local memory.
fn discrete() -> Snapshot {
    let all = Q::GRAPHICS | Q::COMPUTE | Q::TRANSFER;
    device(
        vec![family(all, 64), family(Q::TRANSFER, 64), family(Q::COMPUTE | Q::TRANSFER, 64)],
        &[(F::empty(), 1), (LOCAL, 0), (host(), 1), (host() | F::HOST_CACHED, 1), (host() | LOCAL, 2)],
        &[140 << 30, 64 << 30, 256 << 20],
    )
}

/// Lavapipe: one family and one type for all.
fn software() -> Snapshot {
    let everything = LOCAL | host() | F::HOST_CACHED;
    device(vec![family(Q::GRAPHICS | Q::COMPUTE | Q::TRANSFER, 64)], &[(everything, 0)], &[2 << 30])
}

/// An integrated device whose cached memory is not coherent.
fn integrated() -> Snapshot {
    let types = [(LOCAL, 0), (LOCAL | host(), 0), (LOCAL | F::HOST_VISIBLE | F::HOST_CACHED, 0)];
    device(vec![family(Q::GRAPHICS | Q::COMPUTE, 36)], &types, &[16 << 30])
}

fn plan(snapshot: &Snapshot) -> DevicePlan {
    DevicePlan::new(snapshot, WISHES).unwrap()
}

#[test]
fn a_family_that_only_computes_goes_first() {
    assert_eq!(plan(&discrete()).family, 2);
    assert_eq!(plan(&software()).family, 0);
    assert_eq!(plan(&integrated()).timestamp_bits, 36);
}

#[test]
fn a_discrete_device_keeps_buffers_local_and_host_pages_on_the_host() {
    let memory = plan(&discrete()).memory;
    assert_eq!(memory.types(PageKind::Device), [1, 4], "the window into local memory is the fall-back");
    assert_eq!(memory.types(PageKind::Upload), [3, 2, 4]);
    assert_eq!(memory.types(PageKind::Readback), [3, 2, 4]);
    assert_eq!((memory.total, memory.page_max), (140 << 30, 1 << 32));
}

#[test]
fn one_type_serves_everything() {
    let memory = plan(&software()).memory;
    for kind in [PageKind::Device, PageKind::Upload, PageKind::Readback] {
        assert_eq!(memory.types(kind), [0]);
    }
    assert_eq!(memory.page_max, 2 << 30);
}

#[test]
fn readback_prefers_cached_memory_to_coherent_memory() {
    let memory = plan(&integrated()).memory;
    assert_eq!(memory.types(PageKind::Device), [0, 1, 2]);
    assert_eq!(memory.types(PageKind::Upload), [1, 2]);
    assert_eq!(memory.types(PageKind::Readback), [2, 1]);
}

#[test]
fn memory_with_strings_attached_is_left_alone() {
    let mut snapshot = discrete();
    snapshot.types.insert(0, MemoryType { flags: LOCAL | F::PROTECTED, heap: 0 });
    snapshot.types.insert(0, MemoryType { flags: LOCAL | host() | F::DEVICE_COHERENT_AMD, heap: 0 });
    assert_eq!(plan(&snapshot).memory.types(PageKind::Device), [3, 6]);
}

#[test]
fn old_devices_and_those_without_timelines_are_refused() {
    let mut snapshot = software();
    snapshot.api = (1, 1);
    assert!(DevicePlan::new(&snapshot, WISHES).is_err());
    let mut snapshot = software();
    snapshot.features.timeline = false;
    assert_eq!(DevicePlan::new(&snapshot, WISHES).unwrap_err(), "it has no timeline semaphores");
    let mut snapshot = software();
    snapshot.families = vec![family(Q::TRANSFER, 0)];
    assert!(DevicePlan::new(&snapshot, WISHES).is_err());
    let mut snapshot = software();
    snapshot.types.clear();
    assert!(DevicePlan::new(&snapshot, WISHES).is_err());
}

#[test]
fn pushed_descriptors_bound_the_bindings_of_a_launch() {
    assert_eq!(plan(&discrete()).limits.binding_count, 32);
    let sets = DevicePlan::new(&discrete(), Wishes { push_descriptors: false, ..WISHES }).unwrap();
    assert_eq!(sets.limits.binding_count, 1 << 20);
    assert!(!sets.has(extensions::PUSH_DESCRIPTOR) && sets.has(extensions::ROBUSTNESS2));
}

#[test]
fn kernels_check_where_the_device_does_not_bound_each_binding() {
    assert!(!plan(&discrete()).checks_in_kernels());
    let mut snapshot = discrete();
    snapshot.features.robust_access2 = false;
    assert!(plan(&snapshot).checks_in_kernels());
    let unchecked = DevicePlan::new(&snapshot, Wishes { bounds_check: false, ..WISHES }).unwrap();
    assert!(!unchecked.checks_in_kernels() && !unchecked.features.robust_access);
}

#[test]
fn the_budget_bounds_memory() {
    let mut snapshot = discrete();
    snapshot.heaps[0].budget = Some(100 << 30);
    let plan = plan(&snapshot);
    assert_eq!(plan.memory.total, 100 << 30);
    assert_eq!(plan.memory.page_count_max, 4080);
}
