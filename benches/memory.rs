//! The pools under traces of whole programs, beside a pool of one size class, gpu-allocator and the driver.
//!
//! Two tables: what each holds at the most over what lives at the most, and what a reservation or a release takes.
//! Pages and blocks come from the driver on all sides; slots of one size are only counted, since they would not fit.

#[expect(dead_code, reason = "nothing is launched here")]
mod common;
#[expect(dead_code, reason = "nothing is launched here")]
mod plain;
#[path = "../actors/tests/traces/mod.rs"]
#[expect(dead_code, reason = "tests have traces and measures of their own")]
mod traces;

use std::collections::HashMap;
use std::io::{Write, stdout};
use std::rc::Rc;
use std::time::Instant;

use ash::vk;
use common::{Bench, Case, Result, each};
use gpu_allocator::MemoryLocation;
use gpu_allocator::vulkan::{Allocation, AllocationCreateDesc, AllocationScheme, Allocator, AllocatorCreateDesc};
use plain::buffer::RawBuffer;
use plain::{Gpu, Place};
use traces::{Device, Step, Trace};
use vkactor_actors::engine::command::PageId;
use vkactor_actors::engine::memory::{MemoryLimits, MemoryManager, Shortage, SliceId};
use vkactor_actors::id::StreamId;

fn main() -> Result<()> {
    let (mut bench, gpu) = Bench::open("memory")?;
    let memory = bench.client.properties().memory.clone();
    for device in [Device::Small, Device::Large] {
        if memory.total < device.memory_bytes() / 10 * 9 {
            continue;
        }
        let budget = device.memory_bytes().min(memory.total);
        let side = Side {
            gpu: &gpu,
            limits: MemoryLimits { page_bytes_max: memory.max_page_size, alignment: memory.alignment, budget },
        };
        for trace in Trace::all(device) {
            compare(&mut bench, &side, &trace, device)?;
        }
    }
    bench.finish()
}

/// Something that gives memory under names.
trait Memory {
    /// # Errors
    /// There is no room.
    fn reserve(&mut self, name: u32, bytes: u64) -> Result<()>;

    fn release(&mut self, name: u32);

    /// Bytes that it holds now, in use or not.
    fn held_bytes(&self) -> u64;
}

/// What all sides are made of.
struct Side<'a> {
    gpu: &'a Gpu,
    limits: MemoryLimits,
}

/// Makes a side anew, for a trace.
type Make<'a> = fn(&Side<'a>, &Trace) -> Result<Box<dyn Memory>>;

/// One trace in both tables.
fn compare(bench: &mut Bench, side: &Side<'_>, trace: &Trace, device: Device) -> Result<()> {
    let name = format!("{}, {device:?}", trace.name).to_lowercase();
    let sides: [(&str, Make<'_>); 4] = [
        ("vkactor", |side, _| Ok(Box::new(Pools::new(side)))),
        ("slots of one size", |_, trace| Ok(Box::new(Slots::new(trace)))),
        ("gpu-allocator", |side, _| Ok(Box::new(Blocks::new(side)?))),
        ("vkAllocateMemory", |side, _| Ok(Box::new(Driver::new(side.gpu)))),
    ];
    let steps = if bench.options.quick { QUICK_STEPS } else { STEPS };
    let mut ways = Vec::new();
    for (way, make) in sides {
        let held = held(make(side, trace)?, trace, bench.options.quick)?;
        writeln!(stdout(), "{name:<40} {way:<20} holds {held:.3} of what lives")?;
        ways.push((way, Walk { make, memory: make(side, trace)?, side, trace, at: 0, steps }));
    }
    let mut ways = ways.into_iter().map(|(way, mut walk)| (way, Box::new(move || walk.go_on()) as common::Sample<'_>));
    let Some((_, vkactor)) = ways.next() else { unreachable!("there are four ways") };
    bench.run(Case { name, bytes: None, samples: SAMPLES, vkactor, plain: ways.collect() })
}

/// The most held over the most alive, both by the end of the trace or of what fits.
fn held(mut memory: Box<dyn Memory>, trace: &Trace, quick: bool) -> Result<f64> {
    let mut sizes = Names::default();
    let (mut live, mut live_most, mut held_most) = (0, 0, 0);
    let some = if quick { QUICK_STEPS } else { trace.steps.len() };
    for &step in &trace.steps[..some.min(trace.steps.len())] {
        match step {
            Step::Release(name) => {
                live -= sizes.take(name).unwrap_or(0);
                memory.release(name);
            }
            Step::Reserve { name, bytes } => {
                if let Err(error) = memory.reserve(name, bytes) {
                    writeln!(stdout(), "it ends with {live} bytes alive: {error}")?;
                    break;
                }
                sizes.put(name, bytes);
                live += bytes;
                live_most = live.max(live_most);
                held_most = memory.held_bytes().max(held_most);
            }
        }
    }
    Ok(held_most as f64 / live_most.max(1) as f64)
}

/// A trace that is carried out a few steps at a time, from its start again when it is at its end.
struct Walk<'a> {
    make: Make<'a>,
    memory: Box<dyn Memory>,
    side: &'a Side<'a>,
    trace: &'a Trace,
    at: usize,
    steps: usize,
}

impl Walk<'_> {
    /// Gives nanoseconds for each step.
    fn go_on(&mut self) -> Result<f64> {
        if self.at == self.trace.steps.len() {
            self.start_again()?;
        }
        let end = (self.at + self.steps).min(self.trace.steps.len());
        let steps = &self.trace.steps[self.at..end];
        let started = Instant::now();
        let failed = steps.iter().position(|&step| match step {
            Step::Release(name) => {
                self.memory.release(name);
                false
            }
            Step::Reserve { name, bytes } => self.memory.reserve(name, bytes).is_err(),
        });
        let took = started.elapsed();
        self.at = end;
        match failed {
            None => Ok(each(took, steps.len())),
            // There is no room for more: what was done until then counts.
            Some(done) => {
                self.start_again()?;
                if done == 0 { self.go_on() } else { Ok(each(took, done)) }
            }
        }
    }

    fn start_again(&mut self) -> Result<()> {
        self.at = 0;
        self.memory = (self.make)(self.side, self.trace)?;
        Ok(())
    }
}

/// What has been given, by name.
struct Names<T>(Vec<Option<T>>);

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Names<T> {
    fn put(&mut self, name: u32, value: T) {
        let needed = name as usize + 1;
        if self.0.len() < needed {
            self.0.resize_with(needed, || None);
        }
        self.0[name as usize] = Some(value);
    }

    fn take(&mut self, name: u32) -> Option<T> {
        self.0.get_mut(name as usize).and_then(Option::take)
    }
}

/// The runtime's pools, over pages of the driver.
struct Pools {
    manager: MemoryManager,
    slices: Names<SliceId>,
    pages: HashMap<PageId, RawBuffer>,
    freed: Vec<PageId>,
    device: Rc<plain::Device>,
}

impl Pools {
    fn new(side: &Side<'_>) -> Self {
        Self {
            manager: MemoryManager::new(side.limits),
            slices: Names::default(),
            pages: HashMap::new(),
            freed: Vec::new(),
            device: side.gpu.device.clone(),
        }
    }
}

impl Memory for Pools {
    fn reserve(&mut self, name: u32, bytes: u64) -> Result<()> {
        loop {
            match self.manager.reserve(StreamId::DEFAULT, bytes) {
                Ok(slice) => {
                    self.slices.put(name, slice.id);
                    return Ok(());
                }
                Err(Shortage::Page { page, bytes, .. }) => {
                    self.manager.sweep(false, &mut self.freed);
                    for page in self.freed.drain(..) {
                        self.pages.remove(&page);
                        self.manager.page_freed(page);
                    }
                    match RawBuffer::new(&self.device, bytes, Place::Device) {
                        Ok(memory) => {
                            self.pages.insert(page, memory);
                            self.manager.page_granted(page);
                        }
                        Err(_) => self.manager.page_refused(page),
                    }
                }
                Err(Shortage::Failed(error)) => return Err(error.into()),
            }
        }
    }

    fn release(&mut self, name: u32) {
        if let Some(slice) = self.slices.take(name) {
            self.manager.release(slice);
        }
    }

    fn held_bytes(&self) -> u64 {
        self.manager.usage().bytes_reserved
    }
}

/// A pool of one size class: every reservation has a slot as large as the largest of the trace.
struct Slots {
    slot_bytes: u64,
    slots: u64,
    unused: Vec<u64>,
    taken: Names<u64>,
}

impl Slots {
    fn new(trace: &Trace) -> Self {
        let sizes = trace.steps.iter().map(|step| match *step {
            Step::Release(_) => 0,
            Step::Reserve { bytes, .. } => bytes,
        });
        Self { slot_bytes: sizes.max().unwrap_or(0), slots: 0, unused: Vec::new(), taken: Names::default() }
    }
}

impl Memory for Slots {
    fn reserve(&mut self, name: u32, _: u64) -> Result<()> {
        let slot = self.unused.pop().unwrap_or(self.slots);
        self.slots = self.slots.max(slot + 1);
        self.taken.put(name, slot);
        Ok(())
    }

    fn release(&mut self, name: u32) {
        self.unused.extend(self.taken.take(name));
    }

    fn held_bytes(&self) -> u64 {
        self.slots * self.slot_bytes
    }
}

/// gpu-allocator with its default block sizes.
struct Blocks {
    allocations: Names<Allocation>,
    /// Of a buffer, but for its size.
    requirements: vk::MemoryRequirements,
    /// Goes before the device that it names.
    allocator: Allocator,
    _device: Rc<plain::Device>,
}

impl Blocks {
    fn new(side: &Side<'_>) -> Result<Self> {
        let device = &side.gpu.device;
        let allocator = Allocator::new(&AllocatorCreateDesc {
            instance: device.instance.raw.clone(),
            device: device.raw.clone(),
            physical_device: device.physical,
            debug_settings: gpu_allocator::AllocatorDebugSettings::default(),
            buffer_device_address: false,
            allocation_sizes: gpu_allocator::AllocationSizes::default(),
        })?;
        let memory_type_bits = (1 << device.memory.memory_type_count) - 1;
        let requirements = vk::MemoryRequirements { size: 0, alignment: side.limits.alignment, memory_type_bits };
        Ok(Self { allocations: Names::default(), requirements, allocator, _device: device.clone() })
    }
}

impl Memory for Blocks {
    fn reserve(&mut self, name: u32, bytes: u64) -> Result<()> {
        let size = bytes.next_multiple_of(self.requirements.alignment);
        let allocation = self.allocator.allocate(&AllocationCreateDesc {
            name: "",
            requirements: vk::MemoryRequirements { size, ..self.requirements },
            location: MemoryLocation::GpuOnly,
            linear: true,
            allocation_scheme: AllocationScheme::GpuAllocatorManaged,
        })?;
        self.allocations.put(name, allocation);
        Ok(())
    }

    fn release(&mut self, name: u32) {
        if let Some(allocation) = self.allocations.take(name) {
            self.allocator.free(allocation).expect("it is the allocator's");
        }
    }

    fn held_bytes(&self) -> u64 {
        self.allocator.capacity()
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        for allocation in self.allocations.0.drain(..).flatten() {
            self.allocator.free(allocation).expect("it is the allocator's");
        }
    }
}

/// A buffer with memory of its own for each reservation.
struct Driver {
    buffers: Names<(RawBuffer, u64)>,
    held_bytes: u64,
    device: Rc<plain::Device>,
}

impl Driver {
    fn new(gpu: &Gpu) -> Self {
        Self { buffers: Names::default(), held_bytes: 0, device: gpu.device.clone() }
    }
}

impl Memory for Driver {
    fn reserve(&mut self, name: u32, bytes: u64) -> Result<()> {
        self.buffers.put(name, (RawBuffer::new(&self.device, bytes, Place::Device)?, bytes));
        self.held_bytes += bytes;
        Ok(())
    }

    fn release(&mut self, name: u32) {
        if let Some((_, bytes)) = self.buffers.take(name) {
            self.held_bytes -= bytes;
        }
    }

    /// What was asked for: what the driver rounds up to is its secret.
    fn held_bytes(&self) -> u64 {
        self.held_bytes
    }
}

/// Reservations and releases of a sample: enough for the clock, few enough that samples come from all of a trace.
const STEPS: usize = 10_000;
/// The same with `--quick`, which looks at the start of a trace only.
const QUICK_STEPS: usize = 1_000;
/// Samples a turn.
const SAMPLES: usize = 20;
