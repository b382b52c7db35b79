//! A trace of what the device does.

use crate::client::Client;
use std::future::Future;
use std::path::PathBuf;
use vkactor_actors::error::ServerError;
use vkactor_actors::id::DeviceId;
use vkactor_actors::message::{Body, TraceCall};
use vkactor_actors::trace::{TraceSink, TraceSummary};

impl Client {
    /// Begins a trace of the device, all streams of it, in a file that `ui.perfetto.dev` and `chrome://tracing` open.
    /// A file that is there is replaced.
    ///
    /// Each stream is a track. Each launch is a slice on it with its kernel and its workgroups, timed by the device;
    /// so are reads, uploads and zeroed reservations, with their bytes, and replays, each as one. Submissions and
    /// launches in flight, answers and messages that wait, and memory are counters.
    ///
    /// A slice begins when all earlier work of the device is done, and ends when its own is done too. So launches that
    /// overlap on the device show one behind the other, each with what it added, and slices never sum up to more than
    /// the time that passed. Timing costs two timestamps a command, and keeps some devices from overlapping launches
    /// at all; without a trace there is no cost. The host waits for no disk: what that cannot keep up with is left out
    /// and counted in the [`TraceSummary`].
    ///
    /// # Ordering
    /// Blocks until work sent before is done. Work that is sent after the call has returned is in the trace.
    ///
    /// # Errors
    /// [`IoError::File`](crate::IoError::File) where the file cannot be made; [`ServerError::Busy`] where a trace of
    /// the device is going on; [`ProfileError::Unsupported`](crate::ProfileError::Unsupported) where the device has no
    /// clock; a lost device; [`ServerError::Closed`].
    pub fn trace_start(&self, path: impl Into<PathBuf>) -> Result<(), ServerError> {
        self.block(self.trace_start_async(path))
    }

    /// As [`Client::trace_start`].
    ///
    /// # Ordering
    /// The file is made when this is called, the trace is asked for when the future is polled.
    ///
    /// # Errors
    /// As [`Client::trace_start`].
    ///
    /// # Cancellation
    /// A future dropped halfway may leave the trace going on: [`Client::trace_stop`] ends it.
    pub fn trace_start_async(
        &self,
        path: impl Into<PathBuf>,
    ) -> impl Future<Output = Result<(), ServerError>> + Send + 'static {
        let DeviceId { type_id, index_id } = self.service_id().device;
        let opened = TraceSink::open(path.into(), format!("{} {type_id}:{index_id}", self.name()));
        let client = self.clone();
        async move {
            let (sink, file) = opened?;
            file.wait().await??;
            client.ask(|reply| Body::Trace(TraceCall::Start { sink, reply })).wait().await?
        }
    }

    /// Ends the trace of the device, behind all work that was sent before.
    ///
    /// # Ordering
    /// Blocks until that work is done and the file is whole.
    ///
    /// # Errors
    /// [`ServerError::Generic`] where no trace is going on; [`IoError::File`](crate::IoError::File) where the file
    /// could not be written; [`ServerError::Closed`]. The trace of a device that is lost ends well.
    pub fn trace_stop(&self) -> Result<TraceSummary, ServerError> {
        self.block(self.trace_stop_async())
    }

    /// As [`Client::trace_stop`].
    ///
    /// # Ordering
    /// The end takes its place when this is called, not when the future is polled.
    ///
    /// # Errors
    /// As [`Client::trace_stop`].
    ///
    /// # Cancellation
    /// A dropped future gives the summary up. The trace ends, and its file becomes whole.
    pub fn trace_stop_async(&self) -> impl Future<Output = Result<TraceSummary, ServerError>> + Send + 'static + use<> {
        let answer = self.ask(|reply| Body::Trace(TraceCall::Stop { reply }));
        async move { answer.wait().await? }
    }
}
