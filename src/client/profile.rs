//! Timing windows on a stream.

use crate::client::Client;
use std::future::Future;
use tracing::{Instrument, debug_span};
use vkactor_actors::error::{ProfileError, ServerError};
use vkactor_actors::message::{Body, ProfileCall};
use vkactor_actors::profile::{ProfileDuration, ProfileTicks, ProfileWindow};
use vkactor_actors::reply::{Answer, reply};

impl Client {
    /// Opens a window on the client's stream. [`Client::profile`] is the form that cannot be left open.
    ///
    /// # Ordering
    /// Returns at once: the window opens in its turn, as a launch runs. Work sent before on this stream is not in it;
    /// work of other streams may be. Any number of windows may be open at once. Each costs a little until it is ended
    /// or abandoned. While a capture window is open on any stream of the device, the call blocks until the window is
    /// open.
    ///
    /// # Errors
    /// [`ProfileError::Server`] with what refuses it: a capture window on the stream, or a device that has stopped.
    /// A device that is lost is told by the time.
    pub fn profile_start(&self) -> Result<ProfileWindow, ProfileError> {
        let (open, answer) = self.open_window()?;
        if let Some(answer) = answer {
            self.block(answer.wait())??;
        }
        Ok(open.take())
    }

    /// Closes a window of this device, on the stream on which it was opened, whichever client calls.
    ///
    /// # Ordering
    /// Returns at once: the window closes behind what was sent before, and the returned time waits for the work in it.
    /// While a capture window is open on any stream of the device, the call blocks until the window is closed.
    ///
    /// # Errors
    /// [`ProfileError::NotRegistered`] for a window that was ended or abandoned; [`ProfileError::Server`] with what
    /// refuses it. A window that a capture window refuses to close stays open.
    pub fn profile_end(&self, window: ProfileWindow) -> Result<ProfileDuration, ProfileError> {
        let (time, answer) = self.close_window(window)?;
        if let Some(answer) = answer {
            let closed = self.block(answer.wait()).map_err(ProfileError::from).flatten();
            self.keep_refused(window, closed)?;
        }
        Ok(time)
    }

    /// Forgets a window without measuring it. One that is not open is none of its business.
    ///
    /// # Ordering
    /// Returns at once, and has what was handed over before sent off.
    pub fn profile_abandon(&self, window: ProfileWindow) {
        let mailbox = self.mailbox();
        if !mailbox.windows().close(window) {
            return;
        }
        mailbox.send(window.stream_id, Body::Profile(ProfileCall::Abandon { window }));
        // Often a caller's last word: nothing later would have the work before it submitted. Nobody waits for it.
        let (reply, _nobody) = reply();
        mailbox.send(window.stream_id, Body::Flush { reply });
    }

    /// Runs `func` with the device to itself, as [`Client::exclusive`] does, and measures what it sends on this
    /// client's stream. The time comes when the work is done; `func_name` names it in traces.
    ///
    /// # Errors
    /// As [`Client::profile_start`]: `func` did not run. [`ProfileError::NotMeasured`] and the failure of a launch
    /// are told by the time.
    ///
    /// # Panics
    /// With the panic of `func`, after the window was abandoned and the device given back.
    pub fn profile<O: Send + 'static>(
        &self,
        func: impl FnOnce() -> O + Send,
        func_name: &str,
    ) -> Result<(O, ProfileDuration), ProfileError> {
        let _span = debug_span!("profile", name = func_name).entered();
        self.exclusive(|| {
            let (open, answer) = self.open_window()?;
            if let Some(answer) = answer {
                self.block(answer.wait())??;
            }
            let value = func();
            let duration = self.profile_end(open.window)?;
            Ok((value, duration))
        })
        .map_err(ProfileError::from)?
    }

    /// Measures what is sent on this client's stream while `work` runs; `name` names it in traces. It does not hold
    /// the device: what other tasks send on the same stream meanwhile is in the window too.
    ///
    /// # Ordering
    /// The window opens at the first poll, and closes when `work` is done.
    ///
    /// # Errors
    /// As [`Client::profile`]: `work` did not run where the window is refused.
    ///
    /// # Cancellation
    /// A future that is dropped halfway abandons the window and drops `work`.
    pub fn profile_async<F>(
        &self,
        work: F,
        name: &str,
    ) -> impl Future<Output = Result<(F::Output, ProfileDuration), ProfileError>> + Send + use<F>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (client, span) = (self.clone(), debug_span!("profile", name));
        let measure = async move {
            let (open, answer) = client.open_window()?;
            if let Some(answer) = answer {
                answer.wait().await??;
            }
            let value = work.await;
            let (duration, answer) = client.close_window(open.window)?;
            if let Some(answer) = answer {
                let closed = answer.wait().await.map_err(ProfileError::from).flatten();
                client.keep_refused(open.window, closed)?;
            }
            Ok((value, duration))
        };
        measure.instrument(span)
    }

    /// A window that could not be closed is open still.
    fn keep_refused(&self, window: ProfileWindow, closed: Result<(), ProfileError>) -> Result<(), ProfileError> {
        closed.inspect_err(|_| self.mailbox().windows().reopen(window))
    }

    /// Opens a window; the answer where it may be refused.
    fn open_window(&self) -> Result<(OpenWindow<'_>, Option<Opened>), ProfileError> {
        let mailbox = self.mailbox();
        let window = mailbox.windows().open(self.stream_id());
        let open = OpenWindow { client: self, window, taken: false };
        let (asked, answer) = mailbox.windows().may_be_refused().then(reply).unzip();
        if mailbox.send(self.stream_id(), Body::Profile(ProfileCall::Start { window, reply: asked })) {
            Ok((open, answer))
        } else {
            Err(ServerError::Closed.into())
        }
    }

    /// Closes a window; the answer where it may be refused.
    fn close_window(&self, window: ProfileWindow) -> Result<(ProfileDuration, Option<Opened>), ProfileError> {
        let mailbox = self.mailbox();
        if !mailbox.windows().close(window) {
            return Err(ProfileError::NotRegistered);
        }
        let (ticks, time): (_, Answer<Result<ProfileTicks, ProfileError>>) = reply();
        let (asked, answer) = mailbox.windows().may_be_refused().then(reply).unzip();
        let end = ProfileCall::End { window, reply: asked, ticks };
        if mailbox.send(window.stream_id, Body::Profile(end)) {
            Ok((ProfileDuration::new(self.properties().timing_method, time), answer))
        } else {
            Err(ServerError::Closed.into())
        }
    }
}

/// Whether a window could be opened or closed.
type Opened = Answer<Result<(), ProfileError>>;

/// A window that is abandoned unless it is closed or taken out.
struct OpenWindow<'a> {
    client: &'a Client,
    window: ProfileWindow,
    taken: bool,
}

impl OpenWindow<'_> {
    fn take(mut self) -> ProfileWindow {
        self.taken = true;
        self.window
    }
}

impl Drop for OpenWindow<'_> {
    fn drop(&mut self) {
        if !self.taken {
            self.client.profile_abandon(self.window);
        }
    }
}
