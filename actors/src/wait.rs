//! Waiting for a future on any thread: inside a runtime, on another executor, or on none.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Runs `future` to its end on this thread, and parks the thread meanwhile.
///
/// It enters no runtime, so it may be called where tokio's own `block_on` would panic. The future must be
/// completed by another thread: an actor has one of its own.
pub fn block_on<F: Future>(future: F) -> F::Output {
    spin_then_block_on(future, Duration::ZERO)
}

/// As [`block_on`], polling for `spin` before the thread parks.
pub fn spin_then_block_on<F: Future>(future: F, spin: Duration) -> F::Output {
    let mut future = pin!(future);
    let parker = Arc::new(Parker { thread: std::thread::current(), woken: AtomicBool::new(false) });
    let waker = Waker::from(parker.clone());
    let mut context = Context::from_waker(&waker);
    let started = (!spin.is_zero()).then(Instant::now);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        while !parker.woken.swap(false, Ordering::Acquire) {
            if started.is_some_and(|s| s.elapsed() < spin) {
                std::hint::spin_loop();
            } else {
                std::thread::park();
            }
        }
    }
}

struct Parker {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_inside_a_runtime_for_a_value_of_another_thread() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (send, receive) = tokio::sync::oneshot::channel();
            std::thread::spawn(move || send.send(5).unwrap());
            assert_eq!(spin_then_block_on(receive, Duration::from_micros(50)), Ok(5));
        });
    }
}
