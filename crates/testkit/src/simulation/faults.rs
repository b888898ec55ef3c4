//! What goes wrong by chance: faults drawn from a seed, each with its end, and only as many at once as an operator that
//! makes no mistake survives without losing a write.

use std::time::Duration;

use serde_json::json;

use super::{NAMESPACE, OPERATOR, Simulation};
use crate::chance::Chance;
use crate::etcd::{CallFault, Calls};
use crate::fake::{self, Matching};

/// Something that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process of a member is killed.
    Kill(String),
    /// It is stopped for a while.
    Stop(String, Duration),
    /// A member is cut off from all others for a while.
    Part(String, Duration),
    /// What a member sends does not arrive at another one for a while.
    Deafen(String, String, Duration),
    /// The disk of a member is emptied under its pod.
    Wipe(String),
    /// Its data is damaged.
    Damage(String),
    /// Its disk is full for a while.
    Fill(String, Duration),
    /// A volume made from a snapshot that is so old takes the place of its own.
    Exchange(String, Duration),
    /// Its pod is deleted by somebody.
    DeletePod(String),
    /// Its node loses power for a while.
    LoseNode(String, Duration),
    /// Its kubelet loses the API server for a while.
    CutKubelet(String, Duration),
    /// The operator is killed at its nth passing.
    Crash(u64),
    /// The operator is stopped for a while, and another one starts beside it.
    Overtake(Duration),
    /// The operator hears nothing of changes for a while.
    Blind(Duration),
    /// The API server refuses so many requests of the operator.
    Refuse(u32),
    /// The answer to a write of the operator is lost.
    LoseWrite,
    /// The answer to a change of members is lost.
    LoseChange,
    /// Calls to members are slow for a while.
    Slow(Duration),
    /// A child of the cluster is deleted by somebody.
    DeleteChild(&'static str),
    /// Names do not resolve at first starts for a while.
    Nameless(Duration),
    /// A user wants another size.
    Resize(u8),
}

/// How faults are drawn.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// The cluster they are about.
    pub cluster: String,
    /// How many of them.
    pub faults: u32,
    /// The time between two of them, least and most.
    pub between: (Duration, Duration),
    /// Sizes that a user may want; empty if the size stays.
    pub sizes: Vec<u8>,
}

impl Schedule {
    /// So many faults of a cluster, the next one often before the last is healed.
    pub fn of(cluster: &str, faults: u32) -> Self {
        Self {
            cluster: cluster.to_owned(),
            faults,
            between: (Duration::from_millis(200), Duration::from_secs(40)),
            sizes: Vec::new(),
        }
    }

    /// The next fault, for a cluster with members of these names.
    pub fn draw(&self, chance: &mut Chance, members: &[String]) -> Option<Fault> {
        let member = chance.pick(members)?.clone();
        let other = chance.pick(members)?.clone();
        let short = chance.between(Duration::from_millis(500), Duration::from_secs(20));
        let long = chance.between(Duration::from_secs(10), Duration::from_secs(90));
        let children = ["Service", "PodDisruptionBudget", "StatefulSet"];
        Some(match chance.below(23) {
            0 | 1 => Fault::Kill(member),
            2 => Fault::Stop(member, short),
            3 => Fault::Part(member, short),
            4 => Fault::Deafen(member, other, short),
            5 | 6 => Fault::Wipe(member),
            7 => Fault::Damage(member),
            8 => Fault::Fill(member, long),
            9 => Fault::Exchange(member, short),
            10 => Fault::DeletePod(member),
            11 => Fault::LoseNode(member, long),
            12 => Fault::CutKubelet(member, long),
            13 | 14 => Fault::Crash(1 + chance.below(40)),
            15 => Fault::Overtake(long),
            16 => Fault::Blind(short),
            17 => Fault::Refuse(1 + u32::try_from(chance.below(6)).unwrap_or(0)),
            18 => Fault::LoseWrite,
            19 => Fault::LoseChange,
            20 => Fault::Slow(short),
            21 => Fault::DeleteChild(chance.pick(&children)?),
            _ => match chance.pick(&self.sizes) {
                Some(size) => Fault::Resize(*size),
                None => Fault::Nameless(short),
            },
        })
    }
}

impl Fault {
    /// Whether it takes the data of a member.
    fn takes_data(&self) -> Option<&str> {
        match self {
            Self::Wipe(member) | Self::Damage(member) | Self::Exchange(member, _) => Some(member),
            _ => None,
        }
    }
}

impl Simulation {
    /// Lets the faults of a schedule go wrong, one after another, and ends them all. Says which were injected.
    pub async fn suffer(&self, schedule: &Schedule) -> Vec<Fault> {
        let mut chance = Chance::new(self.draw());
        let mut injected = Vec::new();
        for _ in 0..schedule.faults {
            let (least, most) = schedule.between;
            tokio::time::sleep(chance.between(least, most)).await;
            let members = self.members(&schedule.cluster);
            let Some(fault) = schedule.draw(&mut chance, &members) else {
                continue;
            };
            if self.is_bearable(&schedule.cluster, &fault) {
                self.inject(&schedule.cluster, &fault);
                injected.push(fault);
            }
        }
        // The longest of them ends by itself.
        tokio::time::sleep(Duration::from_secs(100)).await;
        self.heal();
        injected
    }

    /// The names of the pods of a cluster.
    pub fn members(&self, cluster: &str) -> Vec<String> {
        let pods = self.fake().list_objects("v1", "Pod", NAMESPACE);
        let own = pods
            .iter()
            .filter(|pod| pod["metadata"]["labels"]["etcd_cluster"] == *cluster);
        own.filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned))
            .collect()
    }

    /// Whether data may be taken: enough voters hold all of theirs, so that no write is lost by that alone.
    fn is_bearable(&self, cluster: &str, fault: &Fault) -> bool {
        if fault.takes_data().is_none() {
            return true;
        }
        let (well, voters) = self.voters(cluster);
        voters > 2 && well == voters
    }

    /// Ends everything that goes wrong by itself no longer than it has to.
    pub fn heal(&self) {
        self.timeline().note("faults", "all end");
        self.0.faults.clear();
        self.etcds().mend_all();
        self.etcds().clear_faults();
        self.fake().release_watches();
        self.machine().set_nameless(false);
        if self.gate().is_none_or(|gate| gate.is_dead()) {
            self.start_operator();
        }
        if let Some(gate) = self.gate() {
            gate.go_on();
        }
    }

    fn later(&self, after: Duration, undo: impl FnOnce(&Self) + Send + 'static) {
        let this = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            undo(&this);
        });
    }

    /// Lets something go wrong, and ends it in time.
    pub fn inject(&self, cluster: &str, fault: &Fault) {
        self.timeline().note("faults", format_args!("{fault:?}"));
        match fault.clone() {
            Fault::Kill(member) => self.kill(&member),
            Fault::Stop(member, time) => {
                let process = self.pod(&member).and_then(|pod| pod.process);
                let Some(process) = process else { return };
                self.etcds().stop(process);
                self.later(time, move |this| this.etcds().go_on(process));
            }
            Fault::Part(member, time) => {
                self.part(&member, true);
                self.later(time, |this| this.etcds().mend_all());
            }
            Fault::Deafen(member, other, time) => {
                let address = |name: &str| self.pod(name).map(|pod| pod.address).unwrap_or_default();
                let (from, to) = (address(&member), address(&other));
                self.etcds().cut(&from, &to);
                self.later(time, move |this| this.etcds().mend(&from, &to));
            }
            Fault::Wipe(member) => self.wipe(&member),
            Fault::Damage(member) => self.damage(&member),
            Fault::Fill(member, time) => {
                let disk = self.pod(&member).and_then(|pod| pod.disk);
                let Some(disk) = disk else { return };
                self.etcds().fill(disk, true);
                self.later(time, move |this| this.etcds().fill(disk, false));
            }
            Fault::Exchange(member, age) => {
                let Some(content) = self.snapshot(&member) else {
                    return;
                };
                self.later(age, move |this| {
                    let cluster = member
                        .rsplit_once('-')
                        .map_or("", |(cluster, _)| cluster)
                        .to_owned();
                    let (well, voters) = this.voters(&cluster);
                    if voters > 2 && well == voters {
                        this.exchange(&member, content);
                    }
                });
            }
            Fault::DeletePod(member) => {
                self.fake().delete_object("v1", "Pod", NAMESPACE, &member);
            }
            Fault::LoseNode(member, time) => self.with_node(&member, time, |this, node, is_lost| {
                if is_lost {
                    this.machine().lose(node);
                } else {
                    this.machine().restore(node);
                }
            }),
            Fault::CutKubelet(member, time) => self.with_node(&member, time, |this, node, is_lost| {
                if is_lost {
                    this.machine().cut_off(node);
                } else {
                    this.machine().reconnect(node);
                }
            }),
            Fault::DeleteChild(kind) => {
                let version = match kind {
                    "StatefulSet" => "apps/v1",
                    "PodDisruptionBudget" => "policy/v1",
                    _ => "v1",
                };
                self.fake().delete_object(version, kind, NAMESPACE, cluster);
            }
            Fault::Nameless(time) => {
                self.machine().set_nameless(true);
                self.later(time, |this| this.machine().set_nameless(false));
            }
            Fault::Resize(size) => self.edit(cluster, |spec| spec["size"] = json!(size)),
            fault => self.disturb(&fault),
        }
    }

    /// What goes wrong with the operator and its calls.
    fn disturb(&self, fault: &Fault) {
        match fault {
            Fault::Crash(nth) => self.crash_operator_at(*nth, Duration::from_secs(3)),
            Fault::Overtake(time) => {
                let Some(gate) = self.gate() else { return };
                gate.stop();
                self.start_operator();
                self.later(*time, move |this| {
                    gate.go_on();
                    // It finds out that it no longer leads.
                    this.later(Duration::from_secs(5), move |_| gate.kill());
                });
            }
            Fault::Blind(time) => {
                self.fake().hold_watches();
                self.later(*time, |this| this.fake().release_watches());
            }
            Fault::Refuse(times) => {
                self.0
                    .faults
                    .add(Matching::any(), fake::Fault::Status(503), *times);
            }
            Fault::LoseWrite => self.0.faults.add(Matching::writes(), fake::Fault::LoseAnswer, 1),
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
            _ => {}
        }
    }

    fn with_node(&self, member: &str, time: Duration, change: impl Fn(&Self, &str, bool) + Send + 'static) {
        let Some(node) = self.pod(member).map(|pod| pod.node) else {
            return;
        };
        change(self, &node, true);
        self.later(time, move |this| change(this, &node, false));
    }

    /// Lets requests of the operator to the API server go wrong.
    pub fn api_fault(&self, matching: Matching, fault: fake::Fault, times: u32) {
        self.0.faults.add(matching, fault, times);
    }
}
