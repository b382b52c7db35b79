//! Which stages a barrier has to stand between.
//!
//! The engine's barrier orders everything before it before everything behind it. Said to the driver in full it is
//! dear: on an H200 (driver 580) a chain of launches took 4.06 µs each with barriers between all stages, and 1.76 µs
//! in plain Vulkan with barriers between shaders alone. So a barrier is written when a command needs it, between the
//! stages that have worked and the stage that is to work.

use ash::vk;

/// A set of stages, as Vulkan has it.
pub(crate) type Stages = vk::PipelineStageFlags;

/// Where kernels run.
pub(crate) const COMPUTE: Stages = Stages::COMPUTE_SHADER;
/// Where copies and fills run.
pub(crate) const TRANSFER: Stages = Stages::TRANSFER;
/// Where group counts are read. It comes before [`COMPUTE`] in one dispatch, so a barrier that waits for the shader
/// has waited for the counts (Vulkan 1.3, 7.1.2): as a source it needs no name. What it reads is the slot of the
/// count check alone, which stands behind a barrier of its own, so the engine's barriers never end here either.
pub(crate) const INDIRECT: Stages = Stages::DRAW_INDIRECT;

/// The stages that commands work in.
const WORKING: [Stages; 2] = [COMPUTE, TRANSFER];

/// Which work is ordered, along the commands of a queue or of one sealed recording. Command buffers and submissions
/// make no difference to it: barriers reach over them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StageOrder {
    /// For each stage of [`WORKING`], the stages whose work no written barrier has ordered before it.
    unordered: [Stages; 2],
    /// The part of it that the engine wants ordered.
    owed: [Stages; 2],
    /// The stages of all commands.
    used: Stages,
}

/// A barrier as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct StageBarrier {
    /// What has to be done.
    pub(crate) before: Stages,
    /// What waits for it.
    pub(crate) behind: Stages,
}

impl StageOrder {
    /// The engine's barrier: what has worked comes before what is to work.
    pub(crate) fn barrier(&mut self) {
        self.owed = self.unordered;
    }

    /// The engine's barrier, within one stage.
    pub(crate) fn barrier_within(&mut self, stage: Stages) {
        for place in places(stage) {
            self.owed[place] |= self.unordered[place] & stage;
        }
    }

    /// Notes a command that works in `stages`. The answer has to be written before it.
    pub(crate) fn work(&mut self, stages: Stages) -> Option<StageBarrier> {
        let barrier = self.settle(stages);
        self.unordered.iter_mut().for_each(|unordered| *unordered |= stages);
        self.used |= stages;
        barrier
    }

    /// Notes a barrier that is written whether it is owed or not.
    pub(crate) fn written(&mut self, barrier: StageBarrier) {
        for place in places(barrier.behind) {
            self.unordered[place] &= !barrier.before;
            self.owed[place] &= !barrier.before;
        }
    }

    /// Notes a run of a sealed recording, which is ordered behind everything. The answer has to be written before it.
    pub(crate) fn replay(&mut self, tape: &Self) -> Option<StageBarrier> {
        // What the tape's own barriers order is then nothing older than the tape.
        self.barrier();
        let barrier = self.settle(tape.used);
        for place in 0..WORKING.len() {
            self.unordered[place] |= tape.unordered[place];
            self.owed[place] |= tape.owed[place];
        }
        self.used |= tape.used;
        barrier
    }

    /// The one barrier that pays all that is owed to `stages`.
    fn settle(&mut self, stages: Stages) -> Option<StageBarrier> {
        let before = places(stages).fold(Stages::empty(), |all, place| all | self.owed[place]);
        if before.is_empty() {
            return None;
        }
        let barrier = StageBarrier { before, behind: stages };
        self.written(barrier);
        Some(barrier)
    }
}

impl StageBarrier {
    /// What of it concerns memory: writes become seen. For reads that were done the order is enough.
    pub(crate) fn memory(self) -> vk::MemoryBarrier<'static> {
        let seen = reads(self.behind) | writes(self.behind);
        vk::MemoryBarrier::default().src_access_mask(writes(self.before)).dst_access_mask(seen)
    }
}

/// Where `stages` are in [`WORKING`].
fn places(stages: Stages) -> impl Iterator<Item = usize> {
    (0..WORKING.len()).filter(move |place| stages.contains(WORKING[*place]))
}

fn writes(stages: Stages) -> vk::AccessFlags {
    let of = [(COMPUTE, vk::AccessFlags::SHADER_WRITE), (TRANSFER, vk::AccessFlags::TRANSFER_WRITE)];
    accesses(stages, &of)
}

fn reads(stages: Stages) -> vk::AccessFlags {
    let of = [
        (COMPUTE, vk::AccessFlags::SHADER_READ),
        (TRANSFER, vk::AccessFlags::TRANSFER_READ),
        (INDIRECT, vk::AccessFlags::INDIRECT_COMMAND_READ),
        (Stages::HOST, vk::AccessFlags::HOST_READ),
    ];
    accesses(stages, &of)
}

fn accesses(stages: Stages, of: &[(Stages, vk::AccessFlags)]) -> vk::AccessFlags {
    let named = of.iter().filter(|(stage, _)| stages.contains(*stage));
    named.fold(vk::AccessFlags::empty(), |all, (_, access)| all | *access)
}

#[cfg(test)]
mod tests;
