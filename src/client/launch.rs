//! Running kernels, and holding the device while one task uses it.

use crate::client::Client;
use std::sync::atomic::{AtomicU64, Ordering};
use vkactor_actors::error::ServerError;
use vkactor_actors::handle::Handle;
use vkactor_actors::id::BufferId;
use vkactor_actors::kernel::{CubeCount, CubeKernel, KernelArguments};
use vkactor_actors::message::{Body, BufferRange, Count, Kernel, Launch, LeaseId};

impl Client {
    /// Runs a kernel over `count` workgroups. A count with a zero runs nothing, and changes nothing.
    ///
    /// Neither this nor the actor allocates for a launch of a kernel that ran before, but for the box that the caller
    /// gives, with up to [`INLINE_BUFFERS`](vkactor_actors::kernel::INLINE_BUFFERS) buffers and
    /// [`INLINE_INFO`](vkactor_actors::kernel::INLINE_INFO) bytes of parameters.
    ///
    /// # Ordering
    /// Returns at once. The launch sees what was sent before on this stream, and the last word of other streams on
    /// each of its buffers; the device may run it beside work that it shares no written buffer with. A sender with
    /// too many launches in flight is held back: [`Client::ready`] waits as a future instead.
    ///
    /// # Errors
    /// The buffers that the kernel writes carry what goes wrong: a kernel that does not compile, arguments that do
    /// not fit it, a limit of the device, a handle of another device, or the failure of a buffer that it reads.
    pub fn launch(&self, kernel: Box<dyn CubeKernel>, count: CubeCount, bindings: KernelArguments) {
        if !count.is_empty() {
            let budgeted = self.mailbox().admit_launch();
            self.launch_admitted(kernel, count, bindings, budgeted);
        }
    }

    /// As [`Client::launch`], whose place in the budget is taken if it is to have one. Without one it never waits.
    pub(super) fn launch_admitted(
        &self,
        kernel: Box<dyn CubeKernel>,
        count: CubeCount,
        mut bindings: KernelArguments,
        budgeted: bool,
    ) {
        let mut refused = None;
        let mut range = |handle: &Handle| {
            self.range_of(handle).unwrap_or_else(|error| {
                // One refusal is enough: the launch does not run, and its outputs tell this one.
                refused.get_or_insert_with(|| Box::new(error));
                BufferRange { buffer: BufferId::FOREIGN, offset: 0, size: handle.size_in_used() }
            })
        };
        let buffers = bindings.buffers().iter().map(|binding| range(binding.handle())).collect();
        let groups = match &count {
            CubeCount::Static(x, y, z) => Count::Static([*x, *y, *z]),
            CubeCount::Dynamic(binding) => Count::Dynamic(range(binding.handle())),
        };
        let launch = Launch {
            id: kernel.id(),
            kernel: Kernel(Some(kernel)),
            count: groups,
            buffers,
            info: bindings.take_info(),
            refused,
            budgeted,
        };
        self.send(Body::Launch(launch));
        // The handles go after the message: their release must not overtake the launch that uses them.
        drop((count, bindings));
    }

    /// Sends what was handed over to the device. There is no need to, but to have work started that nobody waits for.
    ///
    /// # Ordering
    /// Blocks until the actor has taken all calls before this one and submitted their work, not until it is done.
    ///
    /// # Errors
    /// A lost device, or [`ServerError::Closed`]. Failures of launches are told by their buffers.
    pub fn flush(&self) -> Result<(), ServerError> {
        self.ask_and_wait(|reply| Body::Flush { reply })
    }

    /// Runs `task` on this thread with the device to itself: calls of everyone else wait until it is done, and are
    /// then carried out in their order. Calls that the task makes on this device, on any stream, run at once, as long
    /// as it makes them on its own thread.
    ///
    /// Calling it within itself runs the inner task at once. A task must not wait for another thread's call on the
    /// same device: that call waits for the task.
    ///
    /// # Ordering
    /// Blocks for its turn. The task finds the work that was sent before in its place.
    ///
    /// # Errors
    /// [`ServerError::Closed`]: `task` did not run.
    ///
    /// # Panics
    /// With the panic of `task`, after the device was given back.
    pub fn exclusive<'a, Re: Send + 'static, F: FnOnce() -> Re + Send + 'a>(
        &'a self,
        task: F,
    ) -> Result<Re, ServerError> {
        let mailbox = self.mailbox();
        if mailbox.lease().is_some() {
            return Ok(task());
        }
        let lease = fresh_lease();
        // Made before the wait: a caller that unwinds out of it holds nothing.
        let _end = EndLease { client: self, lease };
        self.block(self.ask(|reply| Body::LeaseAsk { lease, reply }).wait())?;
        Ok(mailbox.under(lease, task))
    }
}

/// Gives a device back, also when a task unwinds.
struct EndLease<'a> {
    client: &'a Client,
    lease: LeaseId,
}

impl Drop for EndLease<'_> {
    fn drop(&mut self) {
        self.client.send(Body::LeaseEnd { lease: self.lease });
    }
}

fn fresh_lease() -> LeaseId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    LeaseId(NEXT.fetch_add(1, Ordering::Relaxed))
}
