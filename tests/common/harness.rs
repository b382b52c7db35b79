//! What tests on Vulkan devices share: the devices, a guard against hangs, numbers, and the causes of errors.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;
use vkactor::{Compute, LaunchError, ServerError};

/// Whether `VKACTOR_TEST_VALIDATION` asks for the validation layer.
pub(crate) fn is_validating() -> bool {
    std::env::var_os("VKACTOR_TEST_VALIDATION").is_some_and(|value| value == "1")
}

/// The devices of this process.
pub(crate) fn compute() -> &'static Compute {
    static COMPUTE: OnceLock<Compute> = OnceLock::new();
    COMPUTE.get_or_init(|| Compute::builder().validation(is_validating()).build().expect("a Vulkan device"))
}

/// Runs a test on a thread of its own. Fails when it takes longer than `limit`, or when the validation layer finds an
/// error meanwhile.
pub(crate) fn run_within(limit: Duration, body: impl FnOnce() + Send + 'static) {
    let errors = vkactor_vulkan::validation_error_count();
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || {
        // Nobody listens any more where the time is up.
        let _ = done.send(catch_unwind(AssertUnwindSafe(body)));
    });
    match result.recv_timeout(limit) {
        Ok(Ok(())) => {}
        Ok(Err(panic)) => resume_unwind(panic),
        Err(_) => panic!("hung: no end after {limit:?}"),
    }
    let found = vkactor_vulkan::validation_error_count() - errors;
    assert_eq!(found, 0, "the validation layer: {:?}", vkactor_vulkan::validation_errors());
}

/// Numbers from a seed, so that a failure comes again (xorshift64*).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub(crate) fn next(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.next() as usize % bound
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// The first causes that an error names.
pub(crate) fn roots(error: &ServerError) -> Vec<&ServerError> {
    match error {
        ServerError::Several { errors } => errors.iter().flat_map(roots).collect(),
        ServerError::Unwritten { root, .. } => roots(root),
        first => vec![first],
    }
}

pub(crate) fn is_compilation(error: &ServerError) -> bool {
    matches!(error, ServerError::Launch(LaunchError::Compilation(_)))
}
