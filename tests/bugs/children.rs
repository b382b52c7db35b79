//! Tests in a process of their own: for what is one for a whole process, and for how processes end.

use std::process::{Command, Output, Stdio};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// Says to a child which test it is.
const CHILD: &str = "VKACTOR_BUGS_CHILD";
/// How long a child may take before it counts as hung.
const LIMIT: Duration = Duration::from_secs(50);

/// How a child ended.
pub(crate) struct Ended {
    /// `None` where a signal ended it.
    pub(crate) code: Option<i32>,
    /// Both of its outputs.
    pub(crate) said: String,
}

impl Ended {
    /// Fails unless the child ran its test, and it passed.
    #[track_caller]
    pub(crate) fn assert_passed(&self) {
        assert!(self.code == Some(0) && self.said.contains("1 passed"), "code {:?}\n{}", self.code, self.said);
    }
}

/// Whether this process is a child that is to run `test`.
pub(crate) fn is_child(test: &str) -> bool {
    std::env::var_os(CHILD).is_some_and(|name| name == test)
}

/// Runs the test of this name in a process of its own, where [`is_child`] holds for it.
pub(crate) fn run(test: &str, env: &[(&str, &str)]) -> Ended {
    run_many(test, env, 1).remove(0)
}

/// As [`run`], in several processes at once.
pub(crate) fn run_many(test: &str, env: &[(&str, &str)], count: usize) -> Vec<Ended> {
    let _shared = crate::MEMORY.read().unwrap_or_else(PoisonError::into_inner);
    let child = || {
        Command::new(std::env::current_exe().expect("a test knows its file"))
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env(CHILD, test)
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a child starts")
    };
    let children: Vec<_> = (0..count).map(|_| child()).collect();
    let ends = children.into_iter().map(|mut child| {
        let start = Instant::now();
        // What a child says is short enough for its pipes.
        while child.try_wait().expect("a child can be waited for").is_none() {
            if start.elapsed() > LIMIT {
                child.kill().expect("a child can be ended");
                panic!("{test}: a process hung");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let Output { status, stdout, stderr } = child.wait_with_output().expect("a child tells what it said");
        let said = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        Ended { code: status.code(), said }
    });
    ends.collect()
}
