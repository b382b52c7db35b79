//! The whole engine under its actor, on the simulated device: random programs against their sequential result.

mod dry;
mod failures;
mod observe;
mod orders;
mod peers;
mod regions;
mod rig;
mod uploads;
mod waiting;
mod windows;
