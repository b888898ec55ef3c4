//! What goes wrong with an operator: it is killed, stopped and overtaken, and its calls to the API server and to members
//! are lost, late, refused or done twice.

use std::time::Duration;

use etcd_operator_etcd::membership::Role;
use etcd_operator_etcd::url::PeerUrl;
use tokio::time::Instant;

use super::faults::{Fault, Mishap};
use super::{NAMESPACE, OPERATOR, Simulation};
use crate::chance::Chance;
use crate::etcd::{CallFault, Calls};
use crate::fake::{self, Matching};
use crate::gate::{Ambush, Side};
use crate::ledger::BLINDNESS;

/// How long a fault that lies in wait does so.
const PATIENCE: Duration = Duration::from_mins(1);
/// How long an operator is away whose node was lost: longer than a fault may go unnoticed.
const AWAY: Duration = BLINDNESS.saturating_add(Duration::from_secs(2));

/// How many passings an operator has at most that was overtaken: some passes over its cluster.
const LAST_PASSINGS: u64 = 120;

impl Simulation {
    /// What goes wrong with the operator and its calls.
    pub(super) fn disturb(&self, cluster: &str, fault: &Fault) {
        match fault {
            Fault::Crash(nth) => self.crash_operator_at(*nth, Duration::from_secs(3)),
            Fault::CrashAround(call, side) => {
                self.crash_operator_around(call, *side, Duration::from_secs(3));
            }
            Fault::Overtake(time) => {
                if let Some(gate) = self.gate() {
                    gate.stop();
                    self.overtake(gate, *time);
                }
            }
            Fault::OvertakeAt(call, time) => {
                let Some(gate) = self.gate() else { return };
                gate.lie_in_wait(Ambush {
                    call: call.clone(),
                    side: Side::Before,
                    is_stop: true,
                });
                let (this, time) = (self.clone(), *time);
                tokio::spawn(async move {
                    let is_held = tokio::time::timeout(PATIENCE, gate.held()).await.is_ok();
                    let is_met = !gate.call_off();
                    if is_met && is_held && gate.is_stopped() {
                        this.overtake(gate, time);
                    }
                });
            }
            Fault::Blind(time) => {
                self.fake().hold_watches();
                self.later(*time, |this| this.fake().release_watches());
            }
            Fault::CutWatches => {
                self.fake().compact();
                self.fake().cut_watches();
            }
            Fault::Refuse(times) => {
                self.0
                    .faults
                    .add(Matching::any(), fake::Fault::Status(503), *times);
            }
            Fault::Forbid(kind, code, times) => {
                let of_it = Matching::writes().resource(kind).subresource("");
                self.0.faults.add(of_it, fake::Fault::Status(*code), *times);
            }
            Fault::LoseWrite => self.0.faults.add(Matching::writes(), fake::Fault::LoseAnswer, 1),
            Fault::Duplicate => self.0.faults.add(Matching::writes(), fake::Fault::Duplicate, 1),
            Fault::LoseChange => {
                for call in ["MemberAdd", "MemberPromote", "MemberRemove"] {
                    let calls = Calls {
                        caller: Some(OPERATOR.to_owned()),
                        ..Calls::of(call)
                    };
                    self.etcds().fault(calls, CallFault::LoseAnswer, 1);
                }
            }
            Fault::Slow(time) => {
                self.etcds().slow(OPERATOR, Duration::from_millis(1500));
                self.later(*time, |this| this.etcds().slow(OPERATOR, Duration::ZERO));
            }
            Fault::Befall(mishap, time) => self.lie_in_wait(cluster, *mishap, *time),
            Fault::Isolate(members, time) => {
                let at = members
                    .iter()
                    .filter_map(|member| Some(self.pod(member)?.address));
                let at: Vec<String> = at.collect();
                for address in &at {
                    self.etcds().part(OPERATOR, address);
                }
                self.later(*time, move |this| {
                    for address in &at {
                        this.etcds().join(OPERATOR, address);
                    }
                });
            }
            _ => {}
        }
    }

    /// Waits for the next learner that has caught up, and lets something befall it.
    fn lie_in_wait(&self, cluster: &str, mishap: Mishap, time: Duration) {
        let (this, cluster) = (self.clone(), cluster.to_owned());
        tokio::spawn(async move {
            let end = Instant::now() + PATIENCE;
            let healed = |this: &Self| this.with(|state| state.healed);
            let before = healed(&this);
            let again = if mishap == Mishap::EmptiedAgain { 3 } else { 1 };
            for _ in 0..again {
                let left = end.saturating_duration_since(Instant::now());
                let is_over = |this: &Self| healed(this) != before;
                let is_time = |this: &Self| is_over(this) || this.learner(&cluster).is_some();
                if !this.until(left, is_time).await || is_over(&this) {
                    return;
                }
                if let Some(learner) = this.learner(&cluster) {
                    this.befall(&cluster, &learner, mishap, time);
                }
            }
        });
    }

    fn befall(&self, cluster: &str, learner: &str, mishap: Mishap, time: Duration) {
        self.timeline()
            .note("faults", format_args!("{learner} is {mishap:?}"));
        // It may get its vote in this very moment, and then the others must be enough without it.
        let (well, voters) = self.voters(cluster);
        let is_spared = voters < 2 || well < voters;
        match mishap {
            // The operator is back first, and finds a learner that could be given a vote and does not run.
            Mishap::LostWithOperator => {
                self.stop_for(learner, AWAY + time);
                if let Some(gate) = self.gate() {
                    gate.kill();
                    self.restart_after(gate, AWAY);
                }
            }
            Mishap::Deaf => {
                let own = self.pod(learner).map(|pod| pod.address).unwrap_or_default();
                let others = self.machine().pods().into_iter().map(|pod| pod.address);
                let others: Vec<String> = others.filter(|address| *address != own).collect();
                for other in &others {
                    self.etcds().cut(other, &own);
                }
                self.later(time, move |this| {
                    for other in &others {
                        this.etcds().mend(other, &own);
                    }
                });
            }
            Mishap::StoppedAsItVotes => {
                let learner = learner.to_owned();
                self.later(Duration::from_secs(2), move |this| this.stop_for(&learner, time));
            }
            Mishap::EmptiedAgain | Mishap::Homeless if is_spared => {}
            Mishap::EmptiedAgain => self.wipe(learner),
            Mishap::Homeless => {
                self.machine().set_too_large(NAMESPACE, learner, true);
                self.fake().delete_object("v1", "Pod", NAMESPACE, learner);
                let learner = learner.to_owned();
                self.later(AWAY + time, move |this| {
                    this.machine().set_too_large(NAMESPACE, &learner, false);
                });
            }
        }
    }

    /// Stops the process of a member for a while.
    pub(super) fn stop_for(&self, member: &str, time: Duration) {
        if let Some(process) = self.pod(member).and_then(|pod| pod.process) {
            self.etcds().stop(process);
            self.later(time, move |this| this.etcds().go_on(process));
        }
    }

    /// The pod of a learner that runs and has all that its cluster agreed on.
    fn learner(&self, cluster: &str) -> Option<String> {
        let end = format!(".{cluster}.{NAMESPACE}.svc");
        let host = self.etcds().truth(|truth| {
            let mut clusters = truth.clusters().into_iter();
            clusters.find_map(|id| {
                let members = truth.members(id).into_values();
                let mut learners = members.filter(|member| member.role == Role::Learner);
                learners.find_map(|learner| {
                    let mut hosts = learner.peer_urls.iter().map(PeerUrl::host);
                    let host = hosts.find(|host| host.ends_with(&end))?.to_owned();
                    (truth.has_all(id, learner.id) && truth.ill_for(id, learner.id).is_none()).then_some(host)
                })
            })
        })?;
        let member = host.strip_suffix(&end)?.to_owned();
        let runs = self.pod(&member)?.process.is_some();
        runs.then_some(member)
    }

    /// Another operator takes the place of one that is stopped, which goes on later and then finds out.
    fn overtake(&self, stopped: crate::gate::Gate, time: Duration) {
        // Where two faults stop the same one, another leads already: a lease is never given to two.
        if !self.gate().is_some_and(|leads| leads.is(&stopped)) {
            return;
        }
        self.timeline()
            .note(OPERATOR, "is stopped, and another one leads");
        self.start_operator();
        self.later(time, move |this| {
            this.timeline().note(OPERATOR, "that was stopped goes on");
            stopped.go_on();
            // It gets as far as its chance takes it: two that go on side by side for long only write over one another,
            // and that is the same again and again.
            stopped.kill_at(1 + Chance::new(this.draw()).below(LAST_PASSINGS));
            this.later(Duration::from_secs(5), move |_| stopped.kill());
        });
    }
}
