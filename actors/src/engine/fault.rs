//! Which failures a buffer carries: claims on byte ranges, each leading back to one stored failure.

use crate::error::ServerError;
use crate::id::ActorId;
use std::ops::Range;
use std::sync::Arc;

/// Steps of a chain that are kept, newest first. A failure may travel for as long as a service runs.
const CHAIN_STEPS_MAX: usize = 64;

/// A failure, stored once.
#[derive(Debug)]
struct Fault {
    id: u64,
    root: ServerError,
}

/// What a spoiled range holds: the failure, and the way it took.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    fault: Arc<Fault>,
    /// Newest first.
    chain: Vec<Arc<str>>,
    /// Told by the device when the launch ran, not when it was enqueued.
    late: bool,
}

impl Claim {
    /// A claim on something that `step` computed from what carries `self`.
    pub(crate) fn through(&self, step: &Arc<str>) -> Self {
        let mut chain = Vec::with_capacity(CHAIN_STEPS_MAX.min(self.chain.len() + 1));
        chain.push(step.clone());
        chain.extend(self.chain.iter().take(CHAIN_STEPS_MAX - 1).cloned());
        Self { fault: self.fault.clone(), chain, late: self.late }
    }

    /// The same claim as the device tells it, after the fact.
    pub(crate) fn late(mut self) -> Self {
        self.late = true;
        self
    }

    fn error(&self) -> ServerError {
        ServerError::Unwritten {
            failure: self.fault.id,
            chain: self.chain.iter().map(|step| step.to_string()).collect(),
            root: Box::new(self.fault.root.clone()),
        }
    }
}

/// Makes failures, each with a number of its own.
#[derive(Debug, Default)]
pub(crate) struct FaultLedger {
    /// Below all numbers of this actor: no two of a process give the same.
    base: u64,
    next: u64,
}

/// Numbers of one actor: far more failures than a service sees, and enough are left for 16 million actors.
const NUMBER_BITS: u32 = 40;

impl FaultLedger {
    /// The ledger of one run of an actor.
    pub(crate) fn of(actor: ActorId) -> Self {
        Self { base: actor.0 << NUMBER_BITS, next: 0 }
    }

    /// How many failures there were.
    pub(crate) fn count(&self) -> u64 {
        self.next
    }

    /// A new failure. One that comes from another device keeps its number and its steps: however many ways it takes,
    /// it is told once.
    pub(crate) fn fail(&mut self, error: ServerError) -> Claim {
        let (id, root, chain) = match error {
            ServerError::Unwritten { failure, chain, root } => {
                (failure, *root, chain.into_iter().map(Arc::from).collect())
            }
            other => {
                self.next += 1;
                (self.base + self.next, other, Vec::new())
            }
        };
        tracing::debug!(failure = id, %root, "failure");
        Claim { fault: Arc::new(Fault { id, root }), chain, late: false }
    }

    /// The failures of an error that may tell of several.
    pub(crate) fn fail_all(&mut self, error: ServerError) -> Vec<Claim> {
        match error {
            ServerError::Several { errors } => errors.into_iter().flat_map(|one| self.fail_all(one)).collect(),
            one => vec![self.fail(one)],
        }
    }
}

/// Claims that were found, each failure once.
#[derive(Debug, Default)]
pub(crate) struct Found(Vec<Claim>);

impl Found {
    /// Adds a claim unless its failure is there.
    pub(crate) fn add(&mut self, claim: &Claim) {
        if !self.0.iter().any(|c| c.fault.id == claim.fault.id) {
            self.0.push(claim.clone());
        }
    }

    /// Whether nothing was found.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The claims.
    pub(crate) fn claims(&self) -> &[Claim] {
        &self.0
    }

    /// What a caller is told.
    pub(crate) fn result(&self) -> Result<(), ServerError> {
        match &self.0[..] {
            [] => Ok(()),
            [one] => Err(one.error()),
            many => Err(ServerError::Several { errors: many.iter().map(Claim::error).collect() }),
        }
    }
}

/// The claims on one buffer, by byte range. Good buffers keep no memory for it.
#[derive(Debug, Default)]
pub(crate) struct Claims(Vec<(Range<u64>, Claim)>);

impl Claims {
    /// Whether the buffer is good.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Spoils a range, beside what spoils it already.
    pub(crate) fn add(&mut self, range: Range<u64>, claim: Claim) {
        let same = |(r, c): &(Range<u64>, Claim)| *r == range && c.fault.id == claim.fault.id;
        if !self.0.iter().any(same) {
            self.0.push((range, claim));
        }
    }

    /// Makes a range good.
    pub(crate) fn heal(&mut self, healed: &Range<u64>) {
        let mut tails = Vec::new();
        self.0.retain_mut(|(range, claim)| {
            if !overlap(range, healed) {
                return true;
            }
            if healed.end < range.end {
                tails.push((healed.end..range.end, claim.clone()));
            }
            range.end = healed.start;
            range.start < range.end
        });
        self.0.extend(tails);
    }

    /// Finds what spoils a range.
    pub(crate) fn find(&self, range: &Range<u64>, found: &mut Found) {
        self.0.iter().filter(|(r, _)| overlap(r, range)).for_each(|(_, claim)| found.add(claim));
    }

    /// As [`Claims::find`], of what the device told after the fact.
    pub(crate) fn find_late(&self, range: &Range<u64>, found: &mut Found) {
        self.0.iter().filter(|(r, c)| c.late && overlap(r, range)).for_each(|(_, claim)| found.add(claim));
    }
}

/// Whether two ranges share a byte. A claim on a buffer of no bytes is found by asking for that buffer.
fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    (a.start < b.end && b.start < a.end) || a == b
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn ids(claims: &Claims, range: Range<u64>) -> BTreeSet<u64> {
        let mut found = Found::default();
        claims.find(&range, &mut found);
        found.claims().iter().map(|c| c.fault.id).collect()
    }

    #[test]
    fn a_long_way_keeps_its_newest_steps_and_its_root() {
        let mut ledger = FaultLedger::default();
        let mut claim = ledger.fail(ServerError::Closed);
        for step in 0..1_000 {
            claim = claim.through(&format!("step {step}").into());
        }
        let ServerError::Unwritten { chain, root, .. } = claim.error() else { panic!("an unwritten buffer") };
        assert_eq!((chain.len(), chain[0].as_str()), (CHAIN_STEPS_MAX, "step 999"));
        assert!(matches!(*root, ServerError::Closed));
    }

    #[test]
    fn a_failure_that_comes_from_another_actor_is_told_once_however_it_came() {
        let [mut there, mut here] = [FaultLedger::of(ActorId(1)), FaultLedger::of(ActorId(2))];
        let (own, first, second) =
            (here.fail(ServerError::Closed), there.fail(ServerError::Closed), there.fail(ServerError::Closed));
        let mut found = Found::default();
        found.add(&own);
        let several = ServerError::Several { errors: vec![first.error(), second.through(&"a step".into()).error()] };
        for error in [first.error(), several, second.error()] {
            here.fail_all(error).iter().for_each(|claim| found.add(claim));
        }
        assert_eq!(found.claims().len(), 3);
        assert_eq!((here.count(), there.count()), (1, 2), "it counts where it happened");
    }

    proptest! {
        /// Against a set of failures for each byte.
        #[test]
        fn ranges_fail_and_heal_apart(
            program in proptest::collection::vec((0u64..24, 1u64..10, any::<bool>()), 1..30)
        ) {
            let mut ledger = FaultLedger::default();
            let mut claims = Claims::default();
            let mut model = vec![BTreeSet::new(); 40];
            for (start, len, heal) in program {
                let range = start..start + len;
                if heal {
                    claims.heal(&range);
                    range.for_each(|byte| model[byte as usize].clear());
                } else {
                    let claim = ledger.fail(ServerError::Closed);
                    range.clone().for_each(|byte| { model[byte as usize].insert(claim.fault.id); });
                    claims.add(range, claim);
                }
                for start in 0..34u64 {
                    let expected: BTreeSet<u64> = (start..start + 3).flat_map(|b| model[b as usize].clone()).collect();
                    prop_assert_eq!(ids(&claims, start..start + 3), expected);
                }
                prop_assert_eq!(claims.is_empty(), model.iter().all(BTreeSet::is_empty));
            }
        }
    }
}
