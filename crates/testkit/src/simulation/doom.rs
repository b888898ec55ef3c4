//! Where an operator is to die: at a call, at one side of it, while a flow is written down as under way. Chance alone comes
//! by most such places too seldom, so each life is given one of its own.

use std::sync::Arc;
use std::time::Duration;

use super::tally::{FLOWS, flow};
use super::{OPERATOR, Simulation};
use crate::gate::{Doom, Side};

/// After so long another operator takes the place of one that died.
const BACK_AFTER: Duration = Duration::from_secs(3);
/// The call by which an operator takes over what another one began.
const TAKE_OVER: &str = "TakeOver";

/// A place at which an operator can die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// What is written down as under way.
    pub flow: &'static str,
    /// The call.
    pub call: &'static str,
    /// At which side of it.
    pub side: Side,
}

impl Place {
    /// Every place of every flow but those of restores.
    pub fn all() -> Vec<Self> {
        let sides = [Side::Before, Side::After];
        let places = FLOWS.iter().flat_map(|(flow, calls)| {
            let calls = calls.iter().flat_map(move |call| sides.map(|side| (call, side)));
            calls.map(|(call, side)| Self { flow, call, side })
        });
        places.collect()
    }

    /// The places by which an operator comes here: somebody must have begun what another one is to take over.
    pub fn with_those_before(self) -> Vec<Self> {
        let calls = FLOWS.iter().find(|(flow, _)| *flow == self.flow);
        // Nobody takes over where no pod waits for its permit.
        let first = calls.and_then(|(_, calls)| calls.iter().find(|call| call.starts_with("Permit")));
        let before = first.filter(|_| self.call == TAKE_OVER).map(|call| Self {
            call,
            side: Side::Before,
            ..self
        });
        before.into_iter().chain([self]).collect()
    }
}

impl Simulation {
    /// Lets operators die at these places from now on, at each once and in this order.
    pub fn destine(&self, places: Vec<Place>) {
        self.with(|state| state.dooms = places.into());
    }

    /// At how many places operators are still to die.
    pub fn dooms(&self) -> usize {
        self.with(|state| state.dooms.len())
    }

    /// Whether an operator dies here, for the gates of all of them.
    pub(super) fn doom(&self) -> Doom {
        let inner = Arc::downgrade(&self.0);
        Box::new(move |call, side| {
            let this = inner.upgrade().map(Self);
            this.is_some_and(|this| this.is_doomed(call, side))
        })
    }

    fn is_doomed(&self, call: &str, side: Side) -> bool {
        let next = self.with(|state| state.dooms.front().copied());
        let is_here =
            |place: &Place| place.call == call && place.side == side && place.flow == flow(self.fake());
        if !next.as_ref().is_some_and(is_here) {
            return false;
        }
        self.with(|state| state.dooms.pop_front());
        self.timeline().note(OPERATOR, "crashes");
        self.later(BACK_AFTER, Self::start_operator_unless_one_lives);
        true
    }
}
