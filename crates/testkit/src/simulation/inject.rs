//! Letting things go wrong, each with its end, and only as many at once as an operator that makes no mistake survives
//! without losing a write.

use std::time::Duration;

use etcd_operator_api::names::ANNOTATION_REPLACE;
use etcd_operator_etcd::policy::newest;
use etcd_operator_etcd::version::{Minor, Version};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, EvictParams};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::faults::{Fault, Meddling, Schedule};
use super::noted::{is_given_up, is_noted, knows_cluster, knows_life, knows_restore, knows_voters};
use super::tally::flow;
use super::{NAMESPACE, Simulation};
use crate::chance::{Chance, mixed};
use crate::fake::{self, Matching};

/// How long after the last fault everything is left to itself: what follows from it may begin late.
const AFTERMATH: Duration = Duration::from_secs(20);

/// A finalizer of somebody else.
const HELD: &str = "snapshots.example/held";

impl Simulation {
    /// Lets the faults of a schedule go wrong, one after another, and ends them all. Says which were injected, by their
    /// numbers.
    pub async fn suffer(&self, schedule: &Schedule) -> Vec<(u32, Fault)> {
        let seed = self.draw();
        let mut injected = Vec::new();
        let mut over = Instant::now();
        for number in schedule.numbers() {
            if !schedule.storms(number, self.events()) {
                // All of them end by themselves.
                tokio::time::sleep_until(over + AFTERMATH).await;
                if !schedule.goes_on(injected.len(), self.events()) {
                    break;
                }
            }
            let mut chance = Chance::new(mixed(seed.wrapping_add(u64::from(number))));
            let (least, most) = schedule.between;
            tokio::time::sleep(chance.between(least, most)).await;
            let members = self.members(&schedule.cluster);
            let (flow, events) = (flow(self.fake()), self.events());
            let Some(fault) = schedule.next(&mut chance, &members, &flow, events) else {
                continue;
            };
            if schedule.has(number) && self.is_bearable(schedule, &fault) {
                self.inject(&schedule.cluster, &fault);
                over = over.max(Instant::now() + fault.lasts());
                injected.push((number, fault));
            }
        }
        tokio::time::sleep_until(over + AFTERMATH).await;
        self.heal();
        injected
    }

    /// The names of the pods of a cluster.
    pub fn members(&self, cluster: &str) -> Vec<String> {
        let pods = self.fake().stored("v1", "Pod");
        let own = pods.iter().filter(|pod| {
            let metadata = &pod["metadata"];
            metadata["namespace"] == *NAMESPACE && metadata["labels"]["etcd_cluster"] == *cluster
        });
        own.filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned))
            .collect()
    }

    /// Whether an operator that makes no mistake survives it without a loss and without a person's help.
    fn is_bearable(&self, schedule: &Schedule, fault: &Fault) -> bool {
        let cluster = &schedule.cluster;
        let (well, voters) = self.voters(cluster);
        // Before anybody could write there is nothing to lose.
        let is_before = self.ledger().asked().0 == 0 && voters == 0;
        let is_sound = voters > 2 && well == voters;
        if fault.takes_data(schedule.is_fleeting) {
            let is_wipe = matches!(fault, Fault::Wipe(_));
            let is_promised = self.look(cluster, is_given_up) == Some(true);
            let is_enough = match fault {
                Fault::Clone(member, other) => schedule.has_person && member != other,
                Fault::Swap(member, other) => schedule.has_person && member != other && voters > 4,
                _ => true,
            };
            return (is_before && is_wipe) || (is_sound && is_enough && !is_promised);
        }
        let status = self.look(cluster, |cluster| cluster["status"].clone());
        let is_latched = status
            .as_ref()
            .is_some_and(|status| status["clusterID"].is_string());
        let set = self
            .fake()
            .stored_one("apps/v1", "StatefulSet", NAMESPACE, cluster);
        match fault {
            // One copy of what must not be forgotten stays.
            Fault::LoseStatus => set.is_some_and(|set| {
                let is_known = |status| knows_voters(&set, status) && knows_restore(&set, status);
                knows_cluster(&set) && status.as_ref().is_some_and(is_known)
            }),
            Fault::Meddle(_) => set.is_some_and(|set| {
                let is_known = |status: &Value| {
                    knows_voters(&set, status) && knows_life(&set, status) && status["restore"].is_null()
                };
                status.as_ref().is_some_and(is_known)
            }),
            // Who has been seen to run by nobody has no volume of his own yet.
            Fault::Reattach(member) => !is_latched || status.is_some_and(|status| is_noted(&status, member)),
            // Whoever is given up goes soon, and is missed like one without data.
            Fault::GiveUp(_) => is_latched && !schedule.is_fleeting && (is_sound || voters == 1),
            Fault::DeleteChild("StatefulSet") | Fault::Hibernate(_) => is_latched && !schedule.is_fleeting,
            // Without learners one or two members that keep their data in their pods take no change, as is told.
            Fault::ChangePods(_) | Fault::Upgrade(_) | Fault::BadImage(..) => {
                let version = self.look(cluster, |cluster| cluster["spec"]["version"].clone());
                let version = version.as_ref().and_then(Value::as_str).unwrap_or_default();
                let has_learners = !["3.2.", "3.3."].iter().any(|minor| version.starts_with(minor));
                is_latched && (has_learners || !schedule.is_fleeting)
            }
            Fault::Evict(_) | Fault::LoseNode(..) | Fault::CutKubelet(..) => !schedule.is_fleeting,
            _ => true,
        }
    }

    /// Ends everything that goes wrong by itself no longer than it has to.
    pub fn heal(&self) {
        self.timeline().note("faults", "all end");
        self.with(|state| state.healed += 1);
        self.0.faults.clear();
        self.etcds().mend_all();
        self.etcds().clear_faults();
        self.fake().release_watches();
        self.machine().set_nameless(false);
        self.machine().let_live();
        self.start_operator_unless_one_lives();
        if let Some(gate) = self.gate() {
            gate.call_off();
            gate.go_on();
        }
    }

    pub(super) fn later(&self, after: Duration, undo: impl FnOnce(&Self) + Send + 'static) {
        let this = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            undo(&this);
        });
    }

    /// Lets something go wrong, and ends it in time.
    pub fn inject(&self, cluster: &str, fault: &Fault) {
        self.timeline().note("faults", format_args!("{fault:?}"));
        self.tally().count(format!("fault {}", fault.kind()));
        match fault.clone() {
            Fault::Kill(member) => self.kill(&member),
            Fault::Stop(member, time) => self.stop_for(&member, time),
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
            Fault::Block(member, time) => {
                let disk = self.pod(&member).and_then(|pod| pod.disk);
                let Some(disk) = disk else { return };
                self.etcds().block(disk, true);
                // Whoever cannot read its files ends.
                self.kill(&member);
                self.later(time, move |this| this.etcds().block(disk, false));
            }
            Fault::Exchange(member, age) => {
                let Some(content) = self.snapshot(&member) else {
                    return;
                };
                let schedule = Schedule::of(cluster, 0);
                let fault = fault.clone();
                self.later(age, move |this| {
                    if this.is_bearable(&schedule, &fault) {
                        this.put_claim_from_snapshot(&member, content);
                    }
                });
            }
            Fault::Clone(member, other) => {
                if let Some(content) = self.snapshot(&other) {
                    self.put_claim_from_snapshot(&member, content);
                }
            }
            Fault::Swap(member, other) => {
                if let (Some(one), Some(two)) = (self.snapshot(&member), self.snapshot(&other)) {
                    self.exchange(&member, two);
                    self.exchange(&other, one);
                }
            }
            Fault::Reattach(member) => {
                if let Some(content) = self.snapshot(&member) {
                    self.exchange(&member, content);
                }
            }
            Fault::HoldClaim(member, time) => self.hold_claim(&member, time),
            Fault::DeletePod(member) => {
                self.fake().delete_object("v1", "Pod", NAMESPACE, &member);
            }
            Fault::Evict(member) => self.evict(member),
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
            Fault::DieYoung(member, steps) => self.machine().die_in_start(&member, steps),
            Fault::Late(member, time) => self.with_node(&member, time, |this, node, is_late| {
                let (least, most) = if is_late { (20_000, 60_000) } else { (100, 600) };
                let of = Duration::from_millis;
                this.machine().set_lateness(node, of(least), of(most));
            }),
            Fault::Unschedulable(member, time) => {
                self.machine().set_too_large(NAMESPACE, &member, true);
                self.later(time, move |this| {
                    this.machine().set_too_large(NAMESPACE, &member, false);
                });
            }
            Fault::DeleteChild(kind) => {
                let version = match kind {
                    "StatefulSet" => "apps/v1",
                    "PodDisruptionBudget" => "policy/v1",
                    _ => "v1",
                };
                self.fake().delete_object(version, kind, NAMESPACE, cluster);
            }
            Fault::LoseStatus => self.lose_status(cluster),
            Fault::Meddle(how) => self.meddle(cluster, how),
            Fault::Nameless(time) => {
                self.machine().set_nameless(true);
                self.later(time, |this| this.machine().set_nameless(false));
            }
            Fault::Resize(size) => self.edit(cluster, |spec| spec["size"] = json!(size)),
            Fault::Hibernate(time) => {
                let before = self
                    .cluster(cluster)
                    .map(|cluster| cluster["spec"]["size"].clone());
                let Some(before) = before.filter(|size| *size != 0) else {
                    return;
                };
                self.edit(cluster, |spec| spec["size"] = json!(0));
                let cluster = cluster.to_owned();
                self.later(time, move |this| {
                    // Another wish may have come since.
                    let is_asleep = this
                        .cluster(&cluster)
                        .is_some_and(|cluster| cluster["spec"]["size"] == 0);
                    if is_asleep {
                        this.edit(&cluster, |spec| spec["size"] = before);
                    }
                });
            }
            Fault::Pause(time) => {
                self.edit(cluster, |spec| spec["paused"] = json!(true));
                let cluster = cluster.to_owned();
                self.later(time, move |this| {
                    this.edit(&cluster, |spec| spec["paused"] = json!(false));
                });
            }
            Fault::ChangePods(number) => self.edit(cluster, |spec| {
                spec["pod"]["etcdEnv"] = json!([{"name": "CHANGE", "value": number.to_string()}]);
            }),
            Fault::Upgrade(minors) => self.edit(cluster, |spec| {
                let version: Option<Version> = spec["version"].as_str().and_then(|text| text.parse().ok());
                let number = version.map_or(0, |version| version.minor + minors);
                let minor = Minor::ALL.into_iter().find(|minor| minor.number() == number);
                spec["version"] = json!(newest(minor.unwrap_or(Minor::V3_7)).to_string());
            }),
            Fault::BadImage(repository, time) => {
                self.edit(cluster, |spec| spec["repository"] = json!(repository));
                let cluster = cluster.to_owned();
                self.later(time, move |this| {
                    this.edit(&cluster, |spec| {
                        if let Some(spec) = spec.as_object_mut() {
                            spec.remove("repository");
                        }
                    });
                });
            }
            Fault::GiveUp(member) => self.give_up(cluster, &member),
            fault => self.disturb(cluster, &fault),
        }
    }

    /// A person makes a claim from a snapshot in the place of a member's own.
    pub fn put_claim_from_snapshot(&self, member: &str, content: crate::etcd::Content) {
        let claim = format!("data-{member}");
        if self.machine().put_claim(NAMESPACE, &claim, content).is_some() {
            self.fake().delete_object("v1", "Pod", NAMESPACE, member);
        }
    }

    fn hold_claim(&self, member: &str, time: Duration) {
        let claim = format!("data-{member}");
        let change = |name: &str, change: &dyn Fn(&mut Vec<Value>)| {
            let kind = "PersistentVolumeClaim";
            self.fake().update_object("v1", kind, NAMESPACE, name, |claim| {
                let list = claim["metadata"]["finalizers"].as_array();
                let mut list = list.cloned().unwrap_or_default();
                change(&mut list);
                claim["metadata"]["finalizers"] = json!(list);
            });
        };
        change(&claim, &|list| list.push(json!(HELD)));
        self.later(time, move |this| this.let_claim_go(&claim));
    }

    fn let_claim_go(&self, claim: &str) {
        let kind = "PersistentVolumeClaim";
        self.fake().update_object("v1", kind, NAMESPACE, claim, |claim| {
            if let Some(list) = claim["metadata"]["finalizers"].as_array_mut() {
                list.retain(|finalizer| finalizer != HELD);
            }
        });
    }

    fn evict(&self, member: String) {
        let pods: Api<Pod> = Api::namespaced(self.fake().client(NAMESPACE), NAMESPACE);
        tokio::spawn(async move {
            // A budget may forbid it.
            let _ = pods.evict(&member, &EvictParams::default()).await;
        });
    }

    /// A user names the member that is to be replaced by its ID, as its status shows it.
    fn give_up(&self, cluster: &str, member: &str) {
        let id = self.look(cluster, |cluster| {
            let members = cluster["status"]["memberStatus"].as_array().into_iter().flatten();
            let mut own = members.filter(|known| known["name"] == *member);
            own.find_map(|own| own["id"].as_str().map(str::to_owned))
        });
        if let Some(id) = id.flatten() {
            self.annotate(cluster, ANNOTATION_REPLACE, &id);
        }
    }

    /// Somebody removes the status, as a restored manifest does.
    pub fn lose_status(&self, cluster: &str) {
        self.timeline().note("user", "loses the status");
        let (version, kind) = ("etcd.database.coreos.com/v1beta2", "EtcdCluster");
        self.fake()
            .update_object(version, kind, NAMESPACE, cluster, |cluster| {
                if let Some(cluster) = cluster.as_object_mut() {
                    cluster.remove("status");
                }
            });
    }

    /// Somebody writes into the status.
    pub fn meddle(&self, cluster: &str, how: Meddling) {
        self.timeline().note("user", format_args!("meddles: {how:?}"));
        let (version, kind) = ("etcd.database.coreos.com/v1beta2", "EtcdCluster");
        self.fake()
            .update_object(version, kind, NAMESPACE, cluster, |cluster| {
                let Some(status) = cluster["status"].as_object_mut() else {
                    return;
                };
                match how {
                    Meddling::NoCluster => drop(status.remove("clusterID")),
                    Meddling::NoMembers => drop(status.remove("memberStatus")),
                    Meddling::OtherCluster => drop(status.insert("clusterID".to_owned(), json!("bad"))),
                    Meddling::OtherIncarnation => {
                        let before = status.get("incarnation").and_then(Value::as_i64);
                        let other = before.unwrap_or_default() + 6;
                        status.insert("incarnation".to_owned(), json!(other));
                    }
                }
            });
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
