//! What happens to a world that nobody planned: a spec that changes its mind, and pods, disks and nodes that go, as long as
//! a quorum is left.

use etcd_operator_api::contract::Verdict;

use super::{Disk, Life, lose_pod};
use crate::observed_state::Ordinal;
use crate::plan::tests::scene::ordinal;

/// What happens to a world.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// The spec asks for so many members.
    Resize(u8),
    /// Something at this place.
    Harm(u16, Harm),
}

/// What happens at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// A member does not answer for a while.
    Silence,
    /// Its pod goes.
    NoPod,
    /// Its pod goes, and its volume with it.
    Nothing,
    /// Its disk is empty.
    Empty,
    /// Its disk is as it was before it ever ran.
    Unborn,
    /// Its data are damaged.
    Damaged,
    /// Its data are of an earlier life.
    Older,
    /// Its volume is attached elsewhere.
    Moved,
    /// Another volume lies in the place of its own.
    Copied,
    /// Its node is gone for good.
    NodeLost,
}

impl Harm {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Silence,
        Self::NoPod,
        Self::Nothing,
        Self::Empty,
        Self::Unborn,
        Self::Damaged,
        Self::Older,
        Self::Moved,
        Self::Copied,
        Self::NodeLost,
    ];

    /// Whether it can come only to whoever runs.
    fn needs_data(self) -> bool {
        !matches!(self, Self::NoPod | Self::Nothing | Self::Empty)
    }
}

impl Life {
    /// Lets it happen, unless it would take the quorum.
    pub fn happens(&mut self, event: Event) {
        match event {
            Event::Resize(size) => {
                let may_sleep = self.scene.observed.persisted.has_formed();
                self.scene.asks_for(if may_sleep { size } else { size.max(1) });
            }
            Event::Harm(number, harm) if self.can_bear(ordinal(number), harm) => self.harm(number, harm),
            Event::Harm(..) => {}
        }
        self.agree();
    }

    /// Whether the voters that run decide without the one at this place.
    fn can_bear(&self, ordinal: Ordinal, harm: Harm) -> bool {
        let observed = &self.scene.observed;
        let Some(known) = self.etcd.as_ref().filter(|_| observed.persisted.has_formed()) else {
            return false;
        };
        let member = observed.etcd_member_in(known, ordinal);
        let own = member.map(|member| member.id);
        let running = self.running();
        let runs = own.is_some_and(|own| running.contains(&own));
        let others = known
            .voters()
            .filter(|voter| Some(voter.id) != own && running.contains(&voter.id));
        let has_pod = observed.member(ordinal).pod.is_some() && observed.member(ordinal).claim.is_some();
        let may_be = runs || !harm.needs_data();
        has_pod && may_be && others.count() >= known.quorum()
    }

    fn harm(&mut self, number: u16, harm: Harm) {
        let at = ordinal(number);
        let now = self.scene.observed.now;
        let observed_member = self.scene.observed.member(at);
        let (Some(pod), Some(claim)) = (observed_member.pod.clone(), observed_member.claim.clone()) else {
            return;
        };
        self.end_process(&pod.uid);
        self.scene.silent(number);
        let found = match harm {
            Harm::Silence => return,
            Harm::NodeLost => {
                self.scene.pod_at(number).node_lost_since = Some(now - jiff::SignedDuration::from_mins(10));
                return;
            }
            Harm::NoPod => None,
            Harm::Nothing => {
                self.scene.gone(number);
                return;
            }
            Harm::Moved => match self.disks.get(&claim.uid) {
                Some(Disk::Of(id)) => Some(Disk::Moved(*id)),
                _ => None,
            },
            Harm::Empty => Some(Disk::Found(Verdict::Empty)),
            Harm::Unborn => Some(Disk::Found(Verdict::Unborn)),
            Harm::Damaged => Some(Disk::Found(Verdict::Damaged)),
            Harm::Older => Some(Disk::Found(Verdict::OtherIncarnation { found: 0 })),
            Harm::Copied => Some(Disk::Found(Verdict::Moved)),
        };
        let mut uid = claim.uid;
        if harm == Harm::Copied
            && let Some(other) = self.scene.claim_at(number)
        {
            self.given += 1;
            other.uid = format!("copy-{number}-{}", self.given);
            other.volume = Some(other.uid.clone());
            uid.clone_from(&other.uid);
        }
        if let Some(found) = found {
            self.disks.insert(uid, found);
        }
        // A volume is exchanged only while no pod holds it, and what goes by itself is not waited for.
        let goes = matches!(harm, Harm::NoPod | Harm::Moved | Harm::Copied);
        if goes && let Some(observed_member) = self.scene.observed.members.get_mut(&at) {
            lose_pod(observed_member);
        }
    }
}
