//! Where reservations go, and what they take.

use crate::client::Client;
use vkactor_actors::engine::memory::{
    InstallMemoryPoolsError, MemoryAllocationMode, MemoryPoolKind, MemoryPoolReport, MemoryPoolsConfig, MemoryReport,
    MemoryUsage,
};
use vkactor_actors::message::Body;

impl Client {
    /// What the pools of all streams of the device hold together.
    ///
    /// # Ordering
    /// Blocks until the actor has taken all calls before this one. A stopped device holds nothing.
    pub fn memory_usage(&self) -> MemoryUsage {
        self.block(self.ask(|reply| Body::Usage { reply }).wait()).unwrap_or_default()
    }

    /// The pools of this client's stream, in the order in which a reservation tries them, with what they hold and
    /// the most they held. [`MemoryReport::plan`] makes the smallest layout of it that would have done.
    ///
    /// # Ordering
    /// As [`Client::memory_usage`].
    pub fn memory_report(&self) -> MemoryReport {
        self.block(self.ask(|reply| Body::Report { reply }).wait()).unwrap_or_else(|_closed| no_pools())
    }

    /// Appends the stream's memory report to the records of the device (see
    /// [`ComputeBuilder::records`](crate::ComputeBuilder::records)) as one line, under this label. Without records it
    /// does nothing.
    ///
    /// # Ordering
    /// Returns at once. The line tells the state after all calls before this one.
    pub fn record_memory(&self, label: &str) {
        self.send(Body::Record { label: label.to_owned() });
    }

    /// Changes where later reservations of the stream go. [`Client::memory_persistent_allocation`] puts the mode
    /// back by itself.
    ///
    /// # Ordering
    /// Returns at once; calls sent later follow the new mode.
    ///
    /// # Safety
    /// No memory safety hangs on it. The mode is the stream's: all its users change it under each other, and
    /// persistent memory is not given back to the device while the pools live.
    #[expect(unsafe_code, reason = "the seed page declares it so; there is no unsafe operation inside")]
    pub unsafe fn allocation_mode(&self, mode: MemoryAllocationMode) {
        self.send(Body::Mode(mode));
    }

    /// Runs `task` on this thread with all reservations of the stream going to the persistent pool, as weights want
    /// it: they fit exactly, no sweep takes them, and they keep their place. Calls may be nested.
    ///
    /// # Ordering
    /// The mode is the stream's: reservations that others make through it meanwhile go there too.
    ///
    /// # Panics
    /// With the panic of `task`, after the mode was put back.
    pub fn memory_persistent_allocation<'a, Re: Send, Input: Send, F: FnOnce(Input) -> Re + Send + 'a>(
        &'a self,
        input: Input,
        task: F,
    ) -> Re {
        self.send(Body::Mode(MemoryAllocationMode::Persistent));
        let _end = EndPersistent(self);
        task(input)
    }

    /// Gives memory that holds nothing back to the device.
    ///
    /// # Ordering
    /// Blocks until what can go at once is gone; what work in flight still uses goes when it is done.
    pub fn memory_cleanup(&self) {
        // A stopped device has given all back.
        self.block(self.ask(|reply| Body::Cleanup { reply }).wait()).unwrap_or_default();
    }

    /// Builds the dynamic pools of this stream anew, and those of every stream that starts later. Other streams keep
    /// theirs, and so does persistent memory. The marks in [`Client::memory_report`] start over.
    ///
    /// # Ordering
    /// Blocks until the actor has taken all calls before this one.
    ///
    /// # Errors
    /// [`InstallMemoryPoolsError::PoolsInUse`] where something lives in the stream's pools: they are left as they
    /// are, later streams have the new layout, and the call may be tried again. On a stopped device
    /// [`InstallMemoryPoolsError::Unsupported`].
    ///
    /// # Panics
    /// Where the layout makes no sense: no pools or too many, pages of no bytes or larger than the device has, slices
    /// larger than their page, a cap below one page. Nothing is changed.
    pub fn install_memory_pools(&self, pools: &MemoryPoolsConfig) -> Result<(), InstallMemoryPoolsError> {
        if let Err(reason) = pools.validate(self.properties().memory.max_page_size) {
            panic!("the layout of the pools makes no sense: {reason}");
        }
        let answer = self.ask(|reply| Body::Install { layout: pools.clone(), reply });
        self.block(answer.wait()).unwrap_or(Err(InstallMemoryPoolsError::Unsupported))
    }
}

/// Ends one persistent window, also when its task unwinds.
struct EndPersistent<'a>(&'a Client);

impl Drop for EndPersistent<'_> {
    fn drop(&mut self) {
        self.0.send(Body::Mode(MemoryAllocationMode::Auto));
    }
}

/// While it lives, the client's stream only counts: reservations appear in the reports and are not backed by memory,
/// launches do not run, writes write nothing, and a read of what was reserved meanwhile is
/// [`IoError::Unsupported`](crate::IoError::Unsupported). Other streams work on. Several may live at once on one
/// stream.
///
/// A buffer that was reserved meanwhile gets its memory when it is used for the first time afterwards, or by another
/// stream. Where there is none left, that use fails with [`IoError::OutOfMemory`](crate::IoError::OutOfMemory) and
/// the next may succeed.
///
/// # Examples
/// To serve from the smallest layout that holds the work:
/// ```no_run
/// # fn requests(_: &vkactor::Client) {}
/// # fn serve(client: &vkactor::Client) -> Result<(), vkactor::InstallMemoryPoolsError> {
/// let dry = vkactor::DryRun::new(client);
/// requests(client);
/// drop(dry);
/// let plan = client.memory_report().plan();
/// client.memory_cleanup();
/// client.install_memory_pools(&plan)?;
/// requests(client);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct DryRun {
    client: Client,
}

impl DryRun {
    /// Starts counting.
    ///
    /// # Ordering
    /// Blocks until all calls before it are taken; calls after it are counted only, until the value is dropped.
    /// Dropping blocks likewise.
    pub fn new(client: &Client) -> Self {
        let dry = Self { client: client.clone() };
        dry.switch(true);
        dry
    }

    fn switch(&self, on: bool) {
        // On a stopped device nothing runs anyway.
        self.client.block(self.client.ask(|reply| Body::DryRun { on, reply }).wait()).unwrap_or_default();
    }
}

impl Drop for DryRun {
    fn drop(&mut self) {
        self.switch(false);
    }
}

/// The report of a device that has stopped.
fn no_pools() -> MemoryReport {
    let persistent = MemoryPoolReport {
        kind: MemoryPoolKind::Persistent,
        usage: MemoryUsage::default(),
        pages: 0,
        pages_peak: 0,
        pages_unmapped: 0,
        bytes_peak: 0,
        largest_alloc: 0,
    };
    MemoryReport { dynamic: Vec::new(), persistent, auxiliary: Vec::new() }
}
