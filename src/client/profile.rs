//! Timing windows on a stream.

use crate::client::Client;
use std::future::Future;
use tracing::{Instrument, debug_span};
use vkactor_actors::error::ProfileError;
use vkactor_actors::message::{Body, ProfileCall};
use vkactor_actors::profile::{ProfileDuration, ProfileTicks, ProfileWindow};
use vkactor_actors::reply::{Answer, reply};

impl Client {
    /// Opens a window on the client's stream. [`Client::profile`] is the form that cannot be left open.
    ///
    /// # Ordering
    /// Blocks until the window is open. Work sent before on this stream is not in it; work of other streams may be.
    /// Any number of windows may be open at once. Each costs a little until it is ended or abandoned.
    ///
    /// # Errors
    /// [`ProfileError::Unsupported`] where the device has no clock; [`ProfileError::Server`] with what refuses it,
    /// such as a capture window.
    pub fn profile_start(&self) -> Result<ProfileWindow, ProfileError> {
        self.block(self.open_window().wait())?
    }

    /// Closes a window of this device, on the stream on which it was opened, whichever client calls.
    ///
    /// # Ordering
    /// Blocks until the window is closed, not until the work in it is done: that is what the returned time waits for.
    ///
    /// # Errors
    /// [`ProfileError::NotRegistered`] for a window that was ended or abandoned; [`ProfileError::Server`].
    pub fn profile_end(&self, window: ProfileWindow) -> Result<ProfileDuration, ProfileError> {
        self.block(self.close_window(window))
    }

    /// Forgets a window without measuring it. One that is not open is none of its business.
    ///
    /// # Ordering
    /// Returns at once, and has what was handed over before sent off.
    pub fn profile_abandon(&self, window: ProfileWindow) {
        let mailbox = self.mailbox();
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
            let open = OpenWindow::of(self, self.profile_start()?);
            let value = func();
            let duration = self.profile_end(open.take())?;
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
            let mut opening = Opening { client: &client, answer: client.open_window() };
            let open = OpenWindow::of(&client, opening.answer.answered().await??);
            let value = work.await;
            let duration = client.close_window(open.take()).await?;
            Ok((value, duration))
        };
        measure.instrument(span)
    }

    fn open_window(&self) -> Answer<Result<ProfileWindow, ProfileError>> {
        self.ask(|reply| Body::Profile(ProfileCall::Start { reply }))
    }

    fn close_window(
        &self,
        window: ProfileWindow,
    ) -> impl Future<Output = Result<ProfileDuration, ProfileError>> + Send + use<> {
        let (done, closed) = reply();
        let (ticks, time): (_, Answer<Result<ProfileTicks, ProfileError>>) = reply();
        let end = ProfileCall::End { window, reply: done, ticks };
        self.mailbox().send(window.stream_id, Body::Profile(end));
        let method = self.properties().timing_method;
        async move {
            closed.wait().await??;
            Ok(ProfileDuration::new(method, time))
        }
    }
}

/// A window that is on its way to a future. Wherever that is dropped, the window does not stay open.
struct Opening<'a> {
    client: &'a Client,
    answer: Answer<Result<ProfileWindow, ProfileError>>,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if let Some(Ok(window)) = self.answer.close() {
            self.client.profile_abandon(window);
        }
    }
}

/// A window that is abandoned unless it is taken out.
struct OpenWindow<'a> {
    client: &'a Client,
    window: ProfileWindow,
    taken: bool,
}

impl<'a> OpenWindow<'a> {
    fn of(client: &'a Client, window: ProfileWindow) -> Self {
        Self { client, window, taken: false }
    }

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
