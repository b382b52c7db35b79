//! Reading device memory: as futures, blocking, and lazily.

use crate::client::Client;
use std::any::{TypeId, type_name};
use std::future::{Future, ready};
use std::pin::Pin;
use std::time::Instant;
use vkactor_actors::bytes::{Bytes, LazySource};
use vkactor_actors::error::ServerError;
use vkactor_actors::handle::Handle;
use vkactor_actors::message::{Body, BufferRange};
use vkactor_actors::server::{ComputeStorage, ManagedResource, ServerStorage};
use vkactor_actors::tensor::{CopyDescriptor, Rows};

/// What a read takes from one buffer.
type Part = (BufferRange, Rows);

impl Client {
    /// The bytes of these buffers, in the order of the list.
    ///
    /// # Ordering
    /// The read takes its place in the stream when this is called, not when the future is polled: work sent before is
    /// in the bytes, work sent later is not. The future needs no client and no runtime.
    ///
    /// # Errors
    /// The failure that any of the buffers carries, all of them in [`ServerError::Several`] where there are more;
    /// [`ServerError::ForeignHandle`]; [`ServerError::Graph`] inside a capture window of the stream; a lost device;
    /// [`ServerError::Closed`]. The buffers are as good as before.
    ///
    /// # Cancellation
    /// A dropped future gives the bytes up. The work before them goes on.
    pub fn read_async(
        &self,
        handles: Vec<Handle>,
    ) -> impl Future<Output = Result<Vec<Bytes>, ServerError>> + Send + use<> {
        self.request(handles.iter().map(|handle| self.part_of(handle)).collect())
    }

    /// As [`Client::read_async`], blocking.
    ///
    /// # Panics
    /// Where [`Client::try_read`] gives an error, with its text.
    pub fn read(&self, handles: Vec<Handle>) -> Vec<Bytes> {
        good(self.try_read(handles))
    }

    /// As [`Client::read_async`], blocking.
    ///
    /// # Errors
    /// As [`Client::read_async`].
    pub fn try_read(&self, handles: Vec<Handle>) -> Result<Vec<Bytes>, ServerError> {
        self.block(self.read_async(handles))
    }

    /// The bytes of one buffer, blocking.
    ///
    /// # Ordering
    /// As [`Client::read_async`].
    ///
    /// # Errors
    /// As [`Client::read_async`].
    pub fn read_one(&self, handle: Handle) -> Result<Bytes, ServerError> {
        self.block(self.read_one_async(handle))
    }

    /// The bytes of one buffer.
    ///
    /// # Ordering
    /// As [`Client::read_async`].
    ///
    /// # Errors
    /// As [`Client::read_async`].
    ///
    /// # Cancellation
    /// As [`Client::read_async`].
    pub fn read_one_async(&self, handle: Handle) -> impl Future<Output = Result<Bytes, ServerError>> + Send + use<> {
        self.request_one(self.part_of(&handle))
    }

    /// As [`Client::read_one`].
    ///
    /// # Panics
    /// Where [`Client::read_one`] gives an error, with its text.
    pub fn read_one_unchecked(&self, handle: Handle) -> Bytes {
        good(self.read_one(handle))
    }

    /// The dense, row-major bytes of these tensors, in the order of the list. Strides must be those of a dense tensor,
    /// or of one whose rows are padded.
    ///
    /// # Ordering
    /// As [`Client::read_async`].
    ///
    /// # Errors
    /// As [`Client::read_async`]; also [`IoError::UnsupportedStrides`](crate::IoError::UnsupportedStrides), and
    /// [`IoError::Unsupported`](crate::IoError::Unsupported) where a tensor ends past its handle.
    ///
    /// # Cancellation
    /// As [`Client::read_async`].
    pub fn read_tensor_async(
        &self,
        descriptors: Vec<CopyDescriptor>,
    ) -> impl Future<Output = Result<Vec<Bytes>, ServerError>> + Send + use<> {
        self.request(descriptors.iter().map(|descriptor| self.tensor_part_of(descriptor)).collect())
    }

    /// As [`Client::read_tensor_async`], blocking.
    ///
    /// # Panics
    /// Where the future gives an error, with its text.
    pub fn read_tensor(&self, descriptors: Vec<CopyDescriptor>) -> Vec<Bytes> {
        good(self.block(self.read_tensor_async(descriptors)))
    }

    /// The dense bytes of one tensor: see [`Client::read_tensor_async`].
    ///
    /// # Ordering
    /// As [`Client::read_async`].
    ///
    /// # Errors
    /// As [`Client::read_tensor_async`].
    ///
    /// # Cancellation
    /// As [`Client::read_async`].
    pub fn read_one_tensor_async(
        &self,
        descriptor: CopyDescriptor,
    ) -> impl Future<Output = Result<Bytes, ServerError>> + Send + use<> {
        self.request_one(self.tensor_part_of(&descriptor))
    }

    /// As [`Client::read_one_tensor_async`], blocking.
    ///
    /// # Panics
    /// Where the future gives an error, with its text.
    pub fn read_one_unchecked_tensor(&self, descriptor: CopyDescriptor) -> Bytes {
        good(self.block(self.read_one_tensor_async(descriptor)))
    }

    /// Bytes that stay on the device until they are first looked at, and are kept from then on. Until then they keep
    /// the buffer and the device alive, and take no memory of the host.
    ///
    /// # Ordering
    /// Nothing is sent now: each fetch is a read on this client's stream at its own time. A buffer that is written
    /// meanwhile shows the new bytes.
    ///
    /// # Errors
    /// Fetching gives those of [`Client::read_tensor_async`]; the next look tries again.
    pub fn read_lazy(&self, descriptor: CopyDescriptor) -> Bytes {
        Bytes::from_lazy(OnDevice { client: self.clone(), descriptor })
    }

    /// As [`Client::read_lazy`]. The future is ready when it is made.
    ///
    /// # Errors
    /// [`ServerError::ForeignHandle`], and what is wrong with the descriptor, at once; the rest when the bytes are
    /// fetched.
    pub fn read_lazy_async(
        &self,
        descriptor: CopyDescriptor,
    ) -> impl Future<Output = Result<Bytes, ServerError>> + Send + use<> {
        ready(self.tensor_part_of(&descriptor).map(|_| self.read_lazy(descriptor)))
    }

    /// The server's own name of the memory behind a handle, for code that drives the device itself.
    ///
    /// The memory stays where it is while the returned value lives. The runtime does not know what such code does
    /// with it: [`Client::sync_buffers`] first, and no work of the runtime on the same memory meanwhile.
    ///
    /// # Ordering
    /// Blocks until the actor has taken all calls before this one, not until their work is done.
    ///
    /// # Errors
    /// [`ServerError::ServiceMismatch`] where the client does not reach an `S`; [`ServerError::ForeignHandle`]; the
    /// failure that the buffer carries; [`ServerError::Closed`].
    pub fn get_resource<S: ServerStorage>(
        &self,
        handle: Handle,
    ) -> Result<ManagedResource<<S::Storage as ComputeStorage>::Resource>, ServerError> {
        let mismatch = || ServerError::ServiceMismatch { requested: short_name(type_name::<S>()) };
        if self.service_id().service != TypeId::of::<S>() {
            return Err(mismatch());
        }
        let range = self.range_of(&handle)?;
        let resource = self.ask_and_wait(|reply| Body::Resource { range, reply })?;
        let resource = resource.downcast().map_err(|_other| mismatch())?;
        Ok(ManagedResource::new(*resource, handle))
    }

    fn part_of(&self, handle: &Handle) -> Result<Part, ServerError> {
        let range = self.range_of(handle)?;
        Ok((range, Rows::contiguous(range.size)))
    }

    pub(super) fn tensor_part_of(&self, descriptor: &CopyDescriptor) -> Result<Part, ServerError> {
        let CopyDescriptor { handle, shape, strides, elem_size } = descriptor;
        let range = self.range_of(handle)?;
        let rows = Rows::of(shape, strides, *elem_size, range.size)?;
        Ok((range, rows))
    }

    /// Sends a read at once, unless it is refused or there is nothing to read.
    fn request(
        &self,
        parts: Result<Vec<Part>, ServerError>,
    ) -> impl Future<Output = Result<Vec<Bytes>, ServerError>> + Send + use<> {
        let asked = Instant::now();
        let latency = self.actor.read_latency().clone();
        let answer = parts.map(|parts| {
            let some = !parts.is_empty();
            some.then(|| self.ask(|reply| Body::Read { parts, reply }))
        });
        async move {
            let Some(answer) = answer? else { return Ok(Vec::new()) };
            let bytes = answer.wait().await??;
            latency.record(asked.elapsed().as_secs_f64());
            Ok(bytes)
        }
    }

    pub(super) fn request_one(
        &self,
        part: Result<Part, ServerError>,
    ) -> impl Future<Output = Result<Bytes, ServerError>> + Send + use<> {
        let read = self.request(part.map(|part| vec![part]));
        async move {
            // The engine gives as many as were asked for.
            Ok(read.await?.pop().unwrap_or_default())
        }
    }
}

/// A tensor that is read when somebody looks.
struct OnDevice {
    client: Client,
    descriptor: CopyDescriptor,
}

impl LazySource for OnDevice {
    fn byte_count(&self) -> usize {
        // A length that no address space holds belongs to a tensor that cannot be read either.
        usize::try_from(self.descriptor.shape.dense_bytes(self.descriptor.elem_size)).unwrap_or(usize::MAX)
    }

    fn read(&self) -> Pin<Box<dyn Future<Output = Result<Bytes, ServerError>> + Send>> {
        Box::pin(self.client.request_one(self.client.tensor_part_of(&self.descriptor)))
    }
}

/// The value of a form of reading that panics.
fn good<T>(read: Result<T, ServerError>) -> T {
    read.unwrap_or_else(|error| panic!("the read failed: {error}"))
}

/// A type's name without its path.
fn short_name(name: &'static str) -> &'static str {
    let path = name.split('<').next().unwrap_or(name);
    path.rfind("::").map_or(name, |at| &name[at + 2..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_name_has_no_path_before_it() {
        assert_eq!(short_name("vkactor_vulkan::open::Vulkan"), "Vulkan");
        assert_eq!(short_name("Vulkan"), "Vulkan");
        assert_eq!(short_name("a::Sim<b::Seed>"), "Sim<b::Seed>");
    }
}
