//! The words in which stories are told: make a cluster, break something, wait for something.

use std::collections::BTreeSet;
use std::time::Duration;

use etcd_operator_etcd::endpoint::{Endpoint, Limits};
use etcd_operator_etcd::port::{Dial as _, Port};
use etcd_operator_etcd::url::PeerUrl;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{NAMESPACE, Simulation};
use crate::etcd::{Caller, Content};
use crate::ledger::Writers;
use crate::machine::Found;

const API: &str = "etcd.database.coreos.com/v1beta2";
const KIND: &str = "EtcdCluster";

impl Simulation {
    /// Creates an `EtcdCluster` on persistent volumes.
    pub fn create(&self, name: &str, size: u8, version: &str) -> Value {
        self.create_with(json!({
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"size": size, "version": version, "storage": {"size": "1Gi"}},
        }))
    }

    /// Creates an `EtcdCluster` as it is.
    pub fn create_with(&self, mut object: Value) -> Value {
        object["apiVersion"] = json!(API);
        object["kind"] = json!(KIND);
        self.timeline()
            .note("user", format_args!("creates {}", object["spec"]));
        self.fake().put_object(object)
    }

    /// The `EtcdCluster` as stored.
    pub fn cluster(&self, name: &str) -> Option<Value> {
        self.fake().get_object(API, KIND, NAMESPACE, name)
    }

    /// Reads something from the `EtcdCluster` as stored.
    pub fn look<T>(&self, name: &str, read: impl FnOnce(&Value) -> T) -> Option<T> {
        let stored = self.fake().stored_one(API, KIND, NAMESPACE, name)?;
        Some(read(&stored))
    }

    /// Changes an `EtcdCluster` as a user does.
    pub fn edit(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let edited = self
            .fake()
            .update_object(API, KIND, NAMESPACE, name, |cluster| change(&mut cluster["spec"]));
        if let Some(edited) = edited {
            self.timeline()
                .note("user", format_args!("wants {}", edited["spec"]));
        }
    }

    /// Annotates an `EtcdCluster` as a user does.
    pub fn annotate(&self, name: &str, annotation: &str, value: &str) {
        self.timeline()
            .note("user", format_args!("annotates {name}: {annotation}={value}"));
        self.fake().update_object(API, KIND, NAMESPACE, name, |cluster| {
            cluster["metadata"]["annotations"][annotation] = json!(value);
        });
    }

    /// Deletes an `EtcdCluster` as a user does.
    pub fn delete(&self, name: &str) {
        self.timeline().note("user", format_args!("deletes {name}"));
        self.fake().delete_object(API, KIND, NAMESPACE, name);
    }

    /// Somebody adds a member without a vote at a host by hand, as etcd's own client does, through any member that serves.
    pub async fn add_by_hand(&self, cluster: &str, host: &str) {
        self.timeline()
            .note("user", format_args!("adds a member at {host} by hand"));
        let peer: PeerUrl = format!("http://{host}:2380")
            .parse()
            .expect("a host is part of a URL");
        for port in self.ports(cluster).await {
            if port.add_learner(std::slice::from_ref(&peer)).await.is_ok() {
                return;
            }
        }
    }

    /// Somebody cancels a downgrade by hand in the same way.
    pub async fn cancel_downgrade_by_hand(&self, cluster: &str) {
        self.timeline().note("user", "cancels the downgrade by hand");
        for port in self.ports(cluster).await {
            if port.cancel_downgrade().await.is_ok() {
                return;
            }
        }
    }

    /// Somebody takes a member out by hand in the same way.
    pub async fn remove_by_hand(&self, cluster: &str, member: &str) {
        self.timeline()
            .note("user", format_args!("takes {member} out by hand"));
        for port in self.ports(cluster).await {
            let Ok(listed) = port.listed().await else {
                continue;
            };
            let mut all = listed.members.values();
            let Some(found) = all.find(|known| known.name.as_deref() == Some(member)) else {
                continue;
            };
            if port.remove(found.id).await.is_ok() {
                return;
            }
        }
    }

    /// Ways to all members that serve, one after the other.
    async fn ports(&self, cluster: &str) -> Vec<Box<dyn Port>> {
        let dialer = self.etcds().dialer(Caller::free("clients"));
        let service = format!("{cluster}-client");
        let mut ports = Vec::new();
        for address in self.machine().endpoints(NAMESPACE, &service) {
            let endpoint = Endpoint {
                url: format!("http://{address}:2379")
                    .parse()
                    .expect("an address is part of a URL"),
                tls: None,
                limits: Limits::default(),
            };
            ports.extend(dialer.dial(&endpoint).await.ok());
        }
        ports
    }

    /// Clients of a cluster at work.
    pub fn write(&self, cluster: &str, clients: u8, every: Duration) -> Writers {
        self.ledger()
            .write(NAMESPACE, cluster, clients, every, self.draw())
    }

    /// The pod of a member.
    pub fn pod(&self, member: &str) -> Option<Found> {
        self.machine().pod(NAMESPACE, member)
    }

    /// Kills the process of a member; its container starts again.
    pub fn kill(&self, member: &str) {
        if let Some(process) = self.pod(member).and_then(|pod| pod.process) {
            self.etcds().kill(process);
        }
    }

    /// Stops the process of a member, or lets it go on.
    pub fn stop(&self, member: &str, is_stopped: bool) {
        let process = self.pod(member).and_then(|pod| pod.process);
        match process {
            Some(process) if is_stopped => self.etcds().stop(process),
            Some(process) => self.etcds().go_on(process),
            None => {}
        }
    }

    /// Empties the disk of a member under its pod, which stays.
    pub fn wipe(&self, member: &str) {
        self.timeline().note(member, "loses what is on its disk");
        if let Some(disk) = self.pod(member).and_then(|pod| pod.disk) {
            self.etcds().wipe(disk);
        }
    }

    /// Damages the data of a member.
    pub fn damage(&self, member: &str) {
        self.timeline().note(member, "has damaged data");
        if let Some(disk) = self.pod(member).and_then(|pod| pod.disk) {
            self.etcds().damage(disk);
        }
    }

    /// What lies on the disk of a member now, as a snapshot of its volume has it.
    pub fn snapshot(&self, member: &str) -> Option<Content> {
        self.etcds().content(self.pod(member)?.disk?)
    }

    /// Puts an older state back on the very disk of a member, in place.
    pub fn revert(&self, member: &str, content: Content) {
        self.timeline().note(member, "has its disk turned back in place");
        if let Some(disk) = self.pod(member).and_then(|pod| pod.disk) {
            self.etcds().revert(disk, content);
        }
    }

    /// Puts another volume with this content in the place of a member's own.
    pub fn exchange(&self, member: &str, content: Content) {
        self.machine()
            .exchange(NAMESPACE, &format!("data-{member}"), content);
    }

    /// Cuts a member off from everybody, members, clients and operator, or joins it again.
    pub fn part(&self, member: &str, is_parted: bool) {
        let what = if is_parted {
            "is cut off"
        } else {
            "is back on the network"
        };
        self.timeline().note(member, what);
        let members = self.machine().pods().into_iter().map(|pod| pod.address);
        let own = self.pod(member).map(|pod| pod.address).unwrap_or_default();
        let others = members
            .filter(|address| *address != own)
            .chain(["clients".to_owned(), super::OPERATOR.to_owned()]);
        for other in others {
            if is_parted {
                self.etcds().part(&own, &other);
            } else {
                self.etcds().join(&own, &other);
            }
        }
    }

    /// Waits for something, and says whether it came in time.
    pub async fn until(&self, limit: Duration, mut is_so: impl FnMut(&Self) -> bool) -> bool {
        let end = Instant::now() + limit;
        let mut objects = self.fake().changes();
        let mut members = self.etcds().shapes();
        loop {
            objects.update();
            members.update();
            if is_so(self) {
                return true;
            }
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(end) => return is_so(self),
                _ = objects.changed() => {}
                _ = members.changed() => {}
                // Some things only time changes.
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
        }
    }

    /// Waits for something, and panics with the record if it does not come in time.
    pub async fn expect(&self, what: &str, limit: Duration, is_so: impl FnMut(&Self) -> bool) {
        let is_so = self.until(limit, is_so).await;
        assert!(
            is_so,
            "seed {}: not in {limit:?}: {what}\n{}\n{}",
            self.seed(),
            self.complaint(),
            self.timeline().text()
        );
    }

    /// How many voters a cluster has that do their part, and how many there are. Of several that ever had the members
    /// of this name the one with the most.
    pub fn voters(&self, cluster: &str) -> (usize, usize) {
        let end = format!(".{cluster}.{NAMESPACE}.svc");
        self.etcds().truth(|truth| {
            let clusters = truth.clusters().into_iter().map(|id| truth.voters(id));
            let own = clusters.filter(|voters| {
                let mut urls = voters.iter().flat_map(|voter| &voter.member.peer_urls);
                urls.any(|url| url.host().ends_with(&end))
            });
            let counted = own.map(|voters| {
                let well = voters.iter().filter(|voter| voter.ill_for.is_none()).count();
                (well, voters.len())
            });
            counted.max().unwrap_or((0, 0))
        })
    }

    /// Whether so many pods of a cluster are ready, each a healthy voter, and there are no other voters.
    pub fn is_whole(&self, cluster: &str, size: u8) -> bool {
        let size = usize::from(size);
        let ready = || {
            let service = format!("{cluster}-client");
            self.machine().endpoints(NAMESPACE, &service).len()
        };
        self.voters(cluster) == (size, size) && self.are_the_first(cluster, size) && ready() == size
    }

    /// Whether the voters of a cluster are those that a cluster of this size has.
    fn are_the_first(&self, cluster: &str, size: usize) -> bool {
        let first = |number| format!("{cluster}-{number}.{cluster}.{NAMESPACE}.svc");
        let wanted: BTreeSet<String> = (0..size).map(first).collect();
        self.etcds().truth(|truth| {
            let mut clusters = truth.clusters().into_iter().map(|id| truth.voters(id));
            clusters.any(|voters| {
                let urls = voters.iter().flat_map(|voter| &voter.member.peer_urls);
                urls.map(|url| url.host().to_owned()).collect::<BTreeSet<_>>() == wanted
            })
        })
    }

    /// Lets time pass until nothing has been written to the API server for so long, within a limit.
    pub async fn quiet(&self, calm: Duration, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let mut version = self.fake().version();
        let mut since = Instant::now();
        while Instant::now() < end {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let now = self.fake().version();
            if now != version {
                version = now;
                since = Instant::now();
            } else if since.elapsed() >= calm {
                return true;
            }
        }
        false
    }
}
