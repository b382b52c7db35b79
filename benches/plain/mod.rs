//! The floor of the benches: one device driven by plain Vulkan calls, with nothing in between.
//!
//! Nothing here leaves its thread, so what Vulkan wants synchronised is (V2). Buffers live as long as the [`Gpu`];
//! a [`Commands`] knows the submission that it is pending in, and is not recorded again before (V3).
#![expect(unsafe_code, reason = "the floor is plain Vulkan calls")]

pub(crate) mod buffer;
pub(crate) mod open;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ptr;
use std::rc::Rc;

use ash::vk;
use vkactor::DeviceInfo;

use crate::common::{Result, pause};
use buffer::RawBuffer;
pub(crate) use buffer::{Place, Region};
pub(crate) use open::Device;

/// Stages and accesses on one side of a barrier.
pub(crate) type Scope = (vk::PipelineStageFlags, vk::AccessFlags);

/// Copies, reading and writing.
pub(crate) const COPY: Scope = (
    vk::PipelineStageFlags::TRANSFER,
    vk::AccessFlags::from_raw(vk::AccessFlags::TRANSFER_READ.as_raw() | vk::AccessFlags::TRANSFER_WRITE.as_raw()),
);
/// All that may come after, the host's reading apart.
const EVERYTHING: Scope = (
    vk::PipelineStageFlags::ALL_COMMANDS,
    vk::AccessFlags::from_raw(vk::AccessFlags::MEMORY_READ.as_raw() | vk::AccessFlags::MEMORY_WRITE.as_raw()),
);
const HOST: Scope = (vk::PipelineStageFlags::HOST, vk::AccessFlags::HOST_READ);

/// How the host learns that the device is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Reads the timeline over and over.
    Spin,
    /// Sleeps in `vkWaitSemaphores`.
    Sleep,
}

/// One queue of one device, its timeline and its buffers.
pub(crate) struct Gpu {
    queue: vk::Queue,
    pool: vk::CommandPool,
    timeline: vk::Semaphore,
    submitted: Cell<u64>,
    done: Cell<u64>,
    buffers: RefCell<Vec<RawBuffer>>,
    pub(crate) device: Rc<Device>,
}

impl Gpu {
    /// Opens the device that `info` describes, with a timeline and a command pool.
    ///
    /// # Errors
    /// No such device, or what the driver says.
    pub(crate) fn open(info: &DeviceInfo) -> Result<Self> {
        let device = Rc::new(Device::open(info)?);
        // SAFETY: the device was made with one queue of this family.
        let queue = unsafe { device.raw.get_device_queue(device.family, 0) };
        let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let create = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: timeline semaphores are enabled; `kind` outlives the call (V5).
        let timeline = unsafe { device.raw.create_semaphore(&create, None)? };
        let create = vk::CommandPoolCreateInfo::default()
            .queue_family_index(device.family)
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER);
        // SAFETY: the family is one of the device's.
        let pool = unsafe { device.raw.create_command_pool(&create, None)? };
        let (submitted, done, buffers) = (Cell::new(0), Cell::new(0), RefCell::default());
        Ok(Self { queue, pool, timeline, submitted, done, buffers, device })
    }

    /// A buffer that lives as long as the device.
    ///
    /// # Errors
    /// What the driver says.
    pub(crate) fn buffer(&self, bytes: u64, place: Place) -> Result<Region> {
        let buffer = RawBuffer::new(&self.device, bytes, place)?;
        let region = buffer.region();
        self.buffers.borrow_mut().push(buffer);
        Ok(region)
    }

    /// A buffer of the device that holds `bytes`.
    ///
    /// # Errors
    /// What the driver says.
    pub(crate) fn filled(&self, bytes: &[u8]) -> Result<Region> {
        let from = self.buffer(bytes.len() as u64, Place::Upload)?;
        let to = self.buffer(bytes.len() as u64, Place::Device)?;
        self.write(from, bytes);
        self.run(|recorder| {
            recorder.copy(from, to);
            recorder.barrier(COPY, EVERYTHING);
        })?;
        Ok(to)
    }

    /// Writes to the start of an upload buffer while no submission is pending.
    ///
    /// # Panics
    /// A submission is pending, or the bytes do not fit.
    pub(crate) fn write(&self, to: Region, bytes: &[u8]) {
        let host = self.host(to, bytes.len());
        // SAFETY: `host` shows at least `bytes.len()` mapped bytes that no submission uses (V4).
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), host, bytes.len()) }
    }

    /// Reads from the start of a host buffer while no submission is pending.
    ///
    /// # Panics
    /// A submission is pending, or the bytes are more than there are.
    pub(crate) fn read(&self, from: Region, bytes: &mut [u8]) {
        let host = self.host(from, bytes.len());
        // SAFETY: as in `write`.
        unsafe { ptr::copy_nonoverlapping(host, bytes.as_mut_ptr(), bytes.len()) }
    }

    fn host(&self, region: Region, bytes: usize) -> *mut u8 {
        assert_eq!(self.done, self.submitted, "a submission that may use the buffer is pending");
        assert!(bytes as u64 <= region.bytes, "{bytes} bytes of a buffer of {}", region.bytes);
        let Some(host) = region.host else { panic!("a buffer that the host does not see") };
        host.as_ptr()
    }

    /// Space for one recording.
    ///
    /// # Errors
    /// What the driver says.
    pub(crate) fn commands(&self) -> Result<Commands> {
        let allocate = vk::CommandBufferAllocateInfo::default()
            .command_pool(self.pool)
            .level(vk::CommandBufferLevel::PRIMARY)
            .command_buffer_count(1);
        // SAFETY: the pool is this device's, and is only used by this thread (V2).
        let raw = unsafe { self.device.raw.allocate_command_buffers(&allocate)? };
        let [raw] = raw[..] else { return Err("the driver gave no command buffer".into()) };
        Ok(Commands { raw, last: Cell::new(0), kept: Vec::new(), device: Rc::clone(&self.device) })
    }

    /// Submits a recording; gives the value at which it is done. A recording may be pending many times.
    ///
    /// # Errors
    /// What the driver says.
    pub(crate) fn submit(&self, commands: &Commands) -> Result<u64> {
        assert!(Rc::ptr_eq(&self.device, &commands.device), "commands of another device");
        let value = self.submitted.get() + 1;
        let (buffers, semaphores, values) = ([commands.raw], [self.timeline], [value]);
        let mut timeline = vk::TimelineSemaphoreSubmitInfo::default().signal_semaphore_values(&values);
        let submit =
            vk::SubmitInfo::default().command_buffers(&buffers).signal_semaphores(&semaphores).push_next(&mut timeline);
        // SAFETY: the commands are recorded, for simultaneous use, and keep what they name alive (V3); the values
        // rise; the structures live to the end of the call (V5); the queue is this thread's (V2).
        unsafe { self.device.raw.queue_submit(self.queue, &[submit], vk::Fence::null())? };
        self.submitted.set(value);
        commands.last.set(value);
        Ok(value)
    }

    /// Waits until the timeline reaches `value`.
    ///
    /// # Errors
    /// What the driver says.
    pub(crate) fn wait(&self, value: u64, how: Wait) -> Result<()> {
        match how {
            Wait::Spin => {
                // SAFETY: the semaphore is a timeline of this device.
                while unsafe { self.device.raw.get_semaphore_counter_value(self.timeline)? } < value {
                    pause();
                }
            }
            Wait::Sleep => {
                let (semaphores, values) = ([self.timeline], [value]);
                let wait = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
                // SAFETY: as above; the arrays outlive the call (V5).
                unsafe { self.device.raw.wait_semaphores(&wait, u64::MAX)? };
            }
        }
        self.done.set(self.done.get().max(value));
        Ok(())
    }

    /// Records, submits and waits: for what is not measured.
    ///
    /// # Errors
    /// What the driver says.
    pub(crate) fn run(&self, record: impl FnOnce(&mut Recorder<'_>)) -> Result<()> {
        let mut commands = self.commands()?;
        commands.record(self, record)?;
        self.wait(self.submit(&commands)?, Wait::Sleep)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // SAFETY: after the wait nothing is pending (V3); the fields are destroyed before their device (V1). An
        // error of the wait means that the device is lost, and then nothing runs either.
        unsafe {
            let _lost = self.device.raw.device_wait_idle();
            self.device.raw.destroy_command_pool(self.pool, None);
            self.device.raw.destroy_semaphore(self.timeline, None);
        }
    }
}

/// One command buffer. Its memory goes back with the pool of its [`Gpu`].
pub(crate) struct Commands {
    raw: vk::CommandBuffer,
    /// The last submission that it is part of.
    last: Cell<u64>,
    kept: Vec<Rc<dyn Any>>,
    device: Rc<Device>,
}

impl Commands {
    /// Replaces what was recorded.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Panics
    /// The commands are pending, or belong to another device.
    pub(crate) fn record<R>(&mut self, gpu: &Gpu, record: impl FnOnce(&mut Recorder<'_>) -> R) -> Result<R> {
        assert!(Rc::ptr_eq(&self.device, &gpu.device), "commands of another device");
        assert!(self.last.get() <= gpu.done.get(), "the commands are pending");
        let flags = vk::CommandBufferUsageFlags::SIMULTANEOUS_USE;
        let begin = vk::CommandBufferBeginInfo::default().flags(flags);
        // SAFETY: the buffer is not pending, as asserted (V3), and its pool allows the implicit reset.
        unsafe { self.device.raw.begin_command_buffer(self.raw, &begin)? };
        self.kept.clear();
        let mut recorder = Recorder { device: &self.device.raw, raw: self.raw, kept: &mut self.kept };
        let result = record(&mut recorder);
        // SAFETY: the buffer was begun above.
        unsafe { self.device.raw.end_command_buffer(self.raw)? };
        Ok(result)
    }
}

/// A command buffer that is being recorded.
pub(crate) struct Recorder<'a> {
    pub(crate) device: &'a ash::Device,
    pub(crate) raw: vk::CommandBuffer,
    /// What must live as long as the recording.
    pub(crate) kept: &'a mut Vec<Rc<dyn Any>>,
}

impl Recorder<'_> {
    /// Orders what `from` names and was recorded before, in earlier submissions too, before what `to` names after.
    pub(crate) fn barrier(&mut self, from: Scope, to: Scope) {
        let memory = [vk::MemoryBarrier::default().src_access_mask(from.1).dst_access_mask(to.1)];
        let none = vk::DependencyFlags::empty();
        // SAFETY: the buffer is being recorded; every stage used here exists on a compute queue.
        unsafe { self.device.cmd_pipeline_barrier(self.raw, from.0, to.0, none, &memory, &[], &[]) }
    }

    /// Copies all of `to` from the start of `from`.
    ///
    /// # Panics
    /// `from` is smaller than `to`.
    pub(crate) fn copy(&mut self, from: Region, to: Region) {
        assert!(from.bytes >= to.bytes, "{} bytes copied from a buffer of {}", to.bytes, from.bytes);
        let range = [vk::BufferCopy { src_offset: from.offset, dst_offset: to.offset, size: to.bytes }];
        // SAFETY: both ranges lie inside their buffers (V8), which live as long as the device.
        unsafe { self.device.cmd_copy_buffer(self.raw, from.raw, to.raw, &range) }
    }

    /// Copies what `writer` wrote, all of `to` from the start of `from`, for the host to read.
    pub(crate) fn read_back(&mut self, writer: Scope, from: Region, to: Region) {
        self.barrier(writer, COPY);
        self.copy(from, to);
        self.barrier(COPY, HOST);
    }
}
