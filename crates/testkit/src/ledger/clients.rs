//! Clients: they write through the Service that users are given, and now and then through the headless one, whatever the
//! operator does meanwhile. What they were told is written down, and in the end they read it again.

use std::time::Duration;

use etcd_operator_etcd::endpoint::Limits;
use etcd_operator_etcd::error::Error;
use etcd_operator_etcd::rejection::Rejection;
use tokio::task::AbortHandle;

use super::{Acked, Ledger, Promise};
use crate::chance::Chance;
use crate::etcd::{Caller, Client};

/// How long a client waits for an answer.
const LIMITS: Limits = Limits {
    connect: Duration::from_secs(1),
    call: Duration::from_secs(2),
};

/// Clients at work. They stop when this is dropped.
#[derive(Debug)]
pub struct Writers(Vec<AbortHandle>);

impl Drop for Writers {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

/// Who is asked.
struct Target {
    host: String,
    /// It came from the Service for clients.
    is_promised: bool,
}

impl Ledger {
    /// So many clients of a cluster, each writing once in a while.
    pub fn write(&self, namespace: &str, cluster: &str, clients: u8, every: Duration, seed: u64) -> Writers {
        let mut chance = Chance::new(seed);
        let tasks = (0..clients).map(|client| {
            let (ledger, chance) = (self.clone(), chance.split());
            let (namespace, cluster) = (namespace.to_owned(), cluster.to_owned());
            let task = tokio::spawn(async move {
                ledger.client(&namespace, &cluster, client, every, chance).await;
            });
            task.abort_handle()
        });
        Writers(tasks.collect())
    }

    async fn client(&self, namespace: &str, cluster: &str, client: u8, every: Duration, mut chance: Chance) {
        for number in 0_u64.. {
            let pause = chance.between(every / 2, every * 3 / 2);
            tokio::time::sleep(pause).await;
            let Some(target) = self.target(namespace, cluster, &mut chance) else {
                continue;
            };
            let key = format!("client-{client}/{number}");
            self.put(&format!("{namespace}/{cluster}"), &target, &key).await;
        }
    }

    fn target(&self, namespace: &str, cluster: &str, chance: &mut Chance) -> Option<Target> {
        let machine = &self.0.machine;
        let is_promised = !chance.one_in(5);
        let service = if is_promised {
            format!("{cluster}-client")
        } else {
            cluster.to_owned()
        };
        let hosts = machine.endpoints(namespace, &service);
        chance.pick(&hosts).map(|host| Target {
            host: host.clone(),
            is_promised,
        })
    }

    pub(super) fn connect(&self, host: &str) -> Client {
        let url = format!("http://{host}:2379")
            .parse()
            .expect("an address is part of a URL");
        Client::new(&self.0.etcds, Caller::free("clients"), url, LIMITS)
    }

    /// Writes one key, whose value is its own, and notes what was answered.
    async fn put(&self, cluster: &str, target: &Target, key: &str) {
        let value = format!("value of {key}");
        let before = self.with(|state| {
            state.asked += 1;
            state.revisions.clone()
        });
        let position = match self.connect(&target.host).put(key, &value).await {
            Ok(position) => position,
            Err(error) => {
                self.with(|state| state.failed += 1);
                self.judge_refusal(target, &error);
                return;
            }
        };
        let at = self.0.etcds.now();
        let least = before.get(&position.cluster).copied().unwrap_or(0);
        if position.revision.0 <= least {
            let what = format!("revision {} after {least} was acknowledged", position.revision);
            self.blame(at, Promise::S1, what);
        }
        self.with(|state| {
            let newest = state.revisions.entry(position.cluster).or_default();
            *newest = (*newest).max(position.revision.0);
            state.acked.entry(cluster.to_owned()).or_default().push(Acked {
                cluster: position.cluster,
                key: key.to_owned(),
                value,
            });
        });
    }

    /// A member that the Service leads to must be one that serves.
    fn judge_refusal(&self, target: &Target, error: &Error) {
        if target.is_promised && error.rejection() == Some(&Rejection::NotForLearners) {
            let what = format!("the Service for clients leads to a learner at {}", target.host);
            self.blame(self.0.etcds.now(), Promise::Clients, what);
        }
    }

    /// Reads everything that was acknowledged, through any member that answers. False if none does.
    pub async fn verify(&self, namespace: &str, cluster: &str) -> bool {
        let owed = self.owed(namespace, cluster);
        // Somebody may have deleted one of its Services a moment ago.
        let services = [cluster.to_owned(), format!("{cluster}-client")];
        let hosts = services
            .iter()
            .flat_map(|service| self.0.machine.endpoints(namespace, service));
        for host in hosts {
            let Ok((position, keys)) = self.connect(&host).all().await else {
                continue;
            };
            self.judge_keys(&owed, position.cluster, &keys);
            return true;
        }
        false
    }
}
