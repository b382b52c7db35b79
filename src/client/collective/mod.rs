//! Work that several devices do together, and its refusal where nothing moves bytes between them.

mod float;
mod group;
mod integer;
mod kernel;

use crate::client::Client;
use crate::client::shipment::Shipment;
use group::{Link, Links, Members, Parcel, Terms};
use std::ops::Range;
use vkactor_actors::error::{IoError, ServerError};
use vkactor_actors::handle::Handle;
use vkactor_actors::id::{DeviceId, ServiceId};
use vkactor_actors::kernel::{CubeCount, KernelArguments};
use vkactor_actors::message::{Body, BufferRange};
use vkactor_actors::properties::ElemType;
use vkactor_actors::registry::{Peer, peer, runs};
use vkactor_actors::reply::Answer;
use vkactor_actors::tensor::Rows;

/// How the members' values become one. They are combined in the order of the members' ids, so a result is the same in
/// every run.
///
/// Integers wrap, but for the mean, which is that of the exact sum, without its fraction. Floats of 16 bits are
/// combined as `f32` and rounded once, to the nearest and even. A NaN among the values is the result of all but `Bool`
/// and integers. `Bool` is any byte but zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReduceOperation {
    /// They are added; of `Bool`, whether any is true.
    Sum,
    /// They are added, and divided by their number. There is none of `Bool`.
    Mean,
    /// The smallest; of `Bool`, whether all are true.
    Min,
    /// The largest; of `Bool`, whether any is true.
    Max,
    /// They are multiplied; of `Bool`, whether all are true.
    Prod,
}

impl Client {
    /// Whether devices of this runtime move bytes between each other without the host: each copies from memory that
    /// the other reaches too. Without it [`Client::to_client`] has the host copy in between, and the collectives refuse.
    pub fn has_device_transport(&self) -> bool {
        self.features().device_transport
    }

    /// Says that collectives over these devices will come. Nothing has to be prepared here: it checks the group and
    /// logs what is wrong with it, which the collectives themselves tell on their destination.
    pub fn ensure_init_collective(&mut self, device_ids: Vec<DeviceId>) {
        match self.members("ensure_init_collective", &device_ids) {
            Ok(members) => tracing::debug!(members = members.peers.len(), own = members.own, "a group of devices"),
            Err(error) => tracing::debug!(%error, "a group that cannot work together"),
        }
    }

    /// Combines `src` of each of the devices, element by element, into `dst` on each of them. The two may be one.
    /// Every member has to call it, in the same order where they have several of one group; the order of the ids does
    /// not matter. Each device reduces a part of the elements and sends it to the others.
    ///
    /// # Ordering
    /// Returns at once, and waits for no other member. Work sent later on this stream finds the result in `dst`; it
    /// may have to wait for the other members. `src` may be written or dropped. While a member has not called, `dst`
    /// of the others stays pending: stopping any member's device ends that.
    ///
    /// # Errors
    /// `dst` carries what goes wrong: [`ServerError::NoDeviceTransport`] where the runtime has none or the group mixes
    /// runtimes; a group that is empty, names a device twice, lacks this one, or names one that does not run; sizes
    /// that differ or are no multiple of the element; a type that the device does not compute with. Where the group
    /// itself makes sense, `dst` of all members carries it: so too when they disagree on size, type or operation, when
    /// a source carries a failure, and when a member is lost or stops before it has called. A `dst` of another device
    /// is left as it is. `src` is good as before.
    pub fn all_reduce(
        &mut self,
        src: Handle,
        dst: Handle,
        dtype: ElemType,
        device_ids: Vec<DeviceId>,
        op: ReduceOperation,
    ) {
        let to = self.range_of(&dst);
        let members = match self.members("all_reduce", &device_ids) {
            Ok(members) => members,
            Err(error) => return self.refuse_collective(to, error),
        };
        let terms = Terms { bytes: dst.size_in_used(), dtype, op };
        let links = members.join();
        let sound = to.clone().and_then(|_| self.check_terms(&src, terms, members.peers.len()));
        match sound {
            Ok(()) => Reduction { client: self, members, terms, src, dst }.run(links),
            Err(error) => {
                for Link { source, result, .. } in links.into_iter().flatten() {
                    source.send(Parcel { terms, shipment: Err(error.clone()) });
                    result.send(Parcel { terms, shipment: Err(error.clone()) });
                }
                self.refuse_collective(to, error);
            }
        }
    }

    /// Waits until the collectives that were sent before on this stream are through, with all other work sent before.
    /// Where a member has not called, that may take until it has. Without a transport there are no collectives: what
    /// was handed over is sent off.
    ///
    /// # Ordering
    /// As [`Client::sync`], blocking. How a collective ended is told by its destination.
    pub fn sync_collective(&self) {
        let waited = if self.has_device_transport() { self.wait_for([]) } else { self.flush() };
        if let Err(error) = waited {
            tracing::warn!(%error, "waiting for collectives ended early");
        }
    }

    /// The running devices of a group, or why a collective over it does not run.
    fn members(&self, operation: &'static str, group: &[DeviceId]) -> Result<Members, ServerError> {
        let ServiceId { device, service } = self.service_id();
        let mut ids = group.to_vec();
        ids.sort_unstable();
        ids.dedup();
        let refused = |why: &str| IoError::Unsupported(format!("{operation} over the group {group:?}: {why}"));
        if ids.len() < group.len() {
            return Err(refused("a device is named twice").into());
        }
        let own = ids.binary_search(&device).map_err(|_| refused("this device is not in it"))?;
        let find = |&id: &DeviceId| {
            let peer = peer(ServiceId { device: id, service });
            match peer {
                Some(peer) if peer.properties().features.device_transport => Ok(peer),
                Some(_) => Err(ServerError::NoDeviceTransport { operation }),
                None if runs(id) && id != device => Err(ServerError::NoDeviceTransport { operation }),
                None => Err(refused(&format!("{id:?} does not run")).into()),
            }
        };
        let peers: Vec<Peer> = ids.iter().map(find).collect::<Result<_, ServerError>>()?;
        if peers[own].actor() != self.mailbox().actor() {
            return Err(ServerError::Closed);
        }
        Ok(Members { peers, own })
    }

    fn check_terms(&self, src: &Handle, terms: Terms, members: usize) -> Result<(), ServerError> {
        let refused = |why: String| Err(IoError::Unsupported(format!("all_reduce: {why}")).into());
        let Terms { bytes, dtype, op } = terms;
        let source = self.range_of(src)?.size;
        if source != bytes {
            return refused(format!("{source} bytes into {bytes}"));
        }
        if !bytes.is_multiple_of(dtype.size() as u64) {
            return refused(format!("{bytes} bytes are not whole elements of {dtype:?}"));
        }
        if dtype == ElemType::Bool && op == ReduceOperation::Mean {
            return refused("there is no mean of Bool".to_owned());
        }
        // All other types are put together from words where a device lacks them.
        if dtype == ElemType::F64 && !self.features().types.contains(&dtype) {
            return refused(format!("the device does not compute with {dtype:?}"));
        }
        if members > MEMBERS_MAX {
            return refused(format!("{members} devices, at most {MEMBERS_MAX} work together"));
        }
        Ok(())
    }

    /// Tells a refusal on the destination, where that is this device's.
    fn refuse_collective(&self, to: Result<BufferRange, ServerError>, error: ServerError) {
        match to {
            Ok(to) => self.spoil(to, error),
            Err(error) => tracing::warn!(%error, "a collective was refused"),
        }
    }
}

/// One member's side of a reduction.
struct Reduction<'a> {
    client: &'a Client,
    members: Members,
    terms: Terms,
    src: Handle,
    dst: Handle,
}

impl Reduction<'_> {
    /// Sends all that this member has to do, in its stream's order.
    fn run(self, links: Links) {
        let own = self.members.own;
        let parts = parts(self.terms.bytes, self.members.peers.len());
        let (mut results, mut sources, mut their_results) = (Vec::new(), Vec::new(), Vec::new());
        for (place, link) in links.into_iter().enumerate() {
            let Some(Link { source, result, their_source, their_result }) = link else { continue };
            source.send(self.parcel(cut(&self.src, &parts[place])));
            results.push(result);
            sources.push((place, their_source));
            their_results.push((place, their_result));
        }
        let result = self.reduce(&parts[own], sources);
        for reply in results {
            reply.send(self.parcel(result.clone()));
        }
        for (place, parcel) in their_results {
            self.land(&cut(&self.dst, &parts[place]), place, parcel);
        }
        // The handles go after the messages: their release must not overtake the work that uses them.
        drop((result, self));
    }

    /// Combines this member's part of all sources into its part of the destination. Gives where the result lies.
    fn reduce(&self, part: &Range<u64>, sources: Vec<(usize, Answer<Parcel>)>) -> Handle {
        let target = cut(&self.dst, part);
        let bytes = part.end - part.start;
        if bytes == 0 {
            return target;
        }
        let mut inputs = vec![self.operand(cut(&self.src, part))];
        for (place, parcel) in sources {
            let input = self.scratch(bytes);
            self.land(&cut(&input, &(0..bytes)), place, parcel);
            inputs.push(input);
        }
        // In the order of the members: this one's is first until it is moved to its place.
        inputs[..=self.members.own].rotate_left(1);
        let direct = self.is_bindable(&target) && !self.overlaps();
        let result = if direct { target.clone() } else { self.scratch(bytes) };
        self.launch(&inputs, &result);
        if direct {
            return result;
        }
        let result = cut(&result, &(0..bytes));
        self.copy(&result, &target);
        result
    }

    /// Launches the kernel over pieces that any device takes at once.
    fn launch(&self, inputs: &[Handle], output: &Handle) {
        let Terms { dtype, op, .. } = self.terms;
        let kernel = kernel::kernel(dtype, op, inputs.len());
        let bytes = output.size_in_used();
        let mut at = 0;
        while at < bytes {
            let piece = at..bytes.min(at + PIECE_BYTES);
            let groups = (piece.end - piece.start).div_ceil(u64::from(kernel::UNITS) * kernel::unit_bytes(dtype));
            let buffers = inputs.iter().chain([output]).map(|whole| cut(whole, &piece).into()).collect();
            let arguments = KernelArguments::new().with_buffers(buffers);
            // It may wait for members that are called later by this very thread: a place in the budget would be one
            // that nobody gives back.
            let count = CubeCount::new_1d(groups as u32);
            self.client.launch_admitted(Box::new(kernel.clone()), count, arguments, false);
            at = piece.end;
        }
    }

    /// The bytes of a handle for another member.
    fn parcel(&self, bytes: Handle) -> Parcel {
        let range = self.client.range_of(&bytes);
        let shipment: Result<Shipment, ServerError> =
            range.map(|range| self.client.ship(range, Rows::contiguous(range.size)));
        Parcel { terms: self.terms, shipment }
    }

    /// Writes what another member gives to `to`.
    fn land(&self, to: &Handle, from: usize, parcel: Answer<Parcel>) {
        let coming = self.members.receive(from, parcel, self.terms);
        if let Ok(range) = self.client.range_of(to) {
            self.client.land(range, Rows::contiguous(range.size), coming);
        }
    }

    /// The handle, or a copy of its bytes where a kernel cannot take them as they lie.
    fn operand(&self, from: Handle) -> Handle {
        if self.is_bindable(&from) {
            return from;
        }
        let copy = self.scratch(from.size_in_used());
        self.copy(&from, &copy);
        copy
    }

    /// Whether a kernel that works on whole words can be given the handle's bytes and no others.
    fn is_bindable(&self, handle: &Handle) -> bool {
        let alignment = self.client.properties().memory.alignment;
        self.client
            .range_of(handle)
            .is_ok_and(|range| range.offset.is_multiple_of(alignment) && range.size.is_multiple_of(WORD_BYTES))
    }

    /// Whether source and destination share bytes and are not the same.
    fn overlaps(&self) -> bool {
        let (Ok(src), Ok(dst)) = (self.client.range_of(&self.src), self.client.range_of(&self.dst)) else {
            return true;
        };
        let shared =
            src.buffer == dst.buffer && src.offset < dst.offset + dst.size && dst.offset < src.offset + src.size;
        shared && src != dst
    }

    /// Memory for so many bytes, in whole words.
    fn scratch(&self, bytes: u64) -> Handle {
        self.client.empty(bytes.next_multiple_of(WORD_BYTES) as usize)
    }

    fn copy(&self, from: &Handle, to: &Handle) {
        if let (Ok(from), Ok(to)) = (self.client.range_of(from), self.client.range_of(to)) {
            self.client.send(Body::Copy { from, rows: Rows::contiguous(from.size), to });
        }
    }
}

/// A part of what a handle names.
fn cut(handle: &Handle, part: &Range<u64>) -> Handle {
    let behind = handle.size_in_used() - part.end;
    handle.clone().offset_start(part.start).offset_end(behind)
}

/// The part of each member: about equal, and starting where a binding may start on any device.
fn parts(bytes: u64, members: usize) -> Vec<Range<u64>> {
    let members = members as u64;
    let units = bytes.div_ceil(PART_ALIGNMENT);
    let start = |member: u64| (units * member / members * PART_ALIGNMENT).min(bytes);
    (0..members).map(|member| start(member)..start(member + 1)).collect()
}

/// Kernels load and store whole words.
const WORD_BYTES: u64 = 4;
/// No device asks bindings to start on more (Vulkan 1.3, table 53: at most 256).
const PART_ALIGNMENT: u64 = 256;
/// Bytes of one launch: within what a binding (128 MiB) and a dimension (65,535 groups) hold on every device.
const PIECE_BYTES: u64 = 16 << 20;
/// Devices of one group. A kernel has a binding for each, and one for the result.
const MEMBERS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_all_the_bytes_in_order_and_start_where_bindings_may() {
        for bytes in [0, 1, 255, 256, 257, 1000, 4096, 100_001] {
            for members in 1..=8 {
                let parts = parts(bytes, members);
                assert_eq!(parts.len(), members);
                let mut at = 0;
                for part in &parts {
                    assert!(part.start == at && part.end >= at, "{parts:?}");
                    assert!(part.start.is_multiple_of(PART_ALIGNMENT) || part.start == bytes, "{parts:?}");
                    at = part.end;
                }
                assert_eq!(at, bytes);
                let (most, least) =
                    (parts.iter().map(|p| p.end - p.start).max(), parts.iter().map(|p| p.end - p.start).min());
                assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 2 * PART_ALIGNMENT), "{parts:?}");
            }
        }
    }
}
