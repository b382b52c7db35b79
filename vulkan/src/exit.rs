//! The end of the process: actors must be done with the driver before it tears itself down.

use std::ffi::c_int;
use std::sync::Once;
use std::time::Duration;
use vkactor_actors::registry;

/// How long the exit of a process waits for its actors: a batch of work on a busy device, and not a hung one.
const PATIENCE: Duration = Duration::from_secs(2);

/// Has the actors stopped when the process exits. To be called once a driver is loaded: what is registered last is
/// called first, so it comes before the driver's own.
///
/// Without it a process that ends while a client lives crashes in NVIDIA's driver (580.159.04, Linux, 2026-12-01: a
/// segmentation fault in some exits, none in others). It can go when a driver waits for its own threads.
pub(crate) fn stop_actors_at_exit() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the function takes no arguments, does not unwind, and lives as long as the process.
        let refused = unsafe { atexit(stop) };
        if refused != 0 {
            tracing::warn!("the end of the process will not wait for its devices");
        }
    });
}

extern "C" fn stop() {
    // Unwinding out of an exit handler would abort: what went wrong there is of no interest any more.
    let _ended = std::panic::catch_unwind(|| registry::stop_all(PATIENCE));
}

unsafe extern "C" {
    /// C's own: calls `function` when the process exits.
    fn atexit(function: extern "C" fn()) -> c_int;
}
