//! How a caller reaches members of the model: over a network that loses and delays, within its own limits, and through
//! a gate at which the caller itself can be stopped. No rule of etcd stands here.

use std::future::pending;
use std::time::Duration;

use etcd_operator_etcd::client::peer_http::PeerReport;
use etcd_operator_etcd::endpoint::{Endpoint, Limits};
use etcd_operator_etcd::error::{Cause, Error};
use etcd_operator_etcd::port::{Answer, Dial, Port};
use etcd_operator_etcd::rejection::Rejection;
use etcd_operator_etcd::url::{ClientUrl, PeerUrl};

use super::Etcds;
use super::faults::CallFault;
use super::process::ProcessId;
use super::world::World;
use crate::gate::{Gate, Side};

/// Somebody who calls members.
#[derive(Clone, Debug)]
pub struct Caller {
    /// By what the network may cut it off; the first is its name.
    pub labels: Vec<String>,
    /// Where it can be stopped.
    pub gate: Gate,
    /// Whether its steps are shown to the judges.
    pub is_judged: bool,
}

impl Caller {
    /// A caller that nobody judges or stops.
    pub fn free(name: &str) -> Self {
        Self {
            labels: vec![name.to_owned()],
            gate: Gate::open(),
            is_judged: false,
        }
    }
}

/// Reaches the members of a model for one caller.
#[derive(Clone, Debug)]
pub struct Dialer {
    pub(crate) etcds: Etcds,
    pub(crate) caller: Caller,
}

/// The connection to whoever answers under one address.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) etcds: Etcds,
    pub(crate) caller: Caller,
    pub(crate) url: ClientUrl,
    pub(crate) limits: Limits,
}

/// How a message fares.
enum Reach {
    Arrives(ProcessId),
    /// Nothing comes back, not even a refusal.
    Vanishes,
    Refused,
}

impl Dial for Dialer {
    fn dial<'a>(&'a self, endpoint: &'a Endpoint) -> Answer<'a, Result<Box<dyn Port>, Error>> {
        Box::pin(async move {
            let line = Line {
                etcds: self.etcds.clone(),
                caller: self.caller.clone(),
                url: endpoint.url.clone(),
                limits: endpoint.limits,
            };
            line.connect().await?;
            Ok(Box::new(line) as Box<dyn Port>)
        })
    }

    fn query_as_peer<'a>(
        &'a self,
        peer: &'a PeerUrl,
        limit: Duration,
    ) -> Answer<'a, Result<PeerReport, String>> {
        Box::pin(async move {
            self.caller.gate.pass("AskAsPeer", Side::Before).await;
            let report = tokio::time::timeout(limit, self.peer_report(peer.host())).await;
            self.caller.gate.pass("AskAsPeer", Side::After).await;
            report.unwrap_or_else(|_| Err(format!("{peer}: no answer within {limit:?}")))
        })
    }
}

impl Dialer {
    /// What the process at this host knows locally, whether it serves clients or not.
    async fn peer_report(&self, host: &str) -> Result<PeerReport, String> {
        let hop = self.etcds.with(|world| world.hop(&self.caller.labels, &[]));
        tokio::time::sleep(hop).await;
        let process = match self.etcds.with(|world| world.reach(&self.caller.labels, host)) {
            Reach::Arrives(process) => process,
            Reach::Refused => return Err("connection refused".to_owned()),
            Reach::Vanishes => pending().await,
        };
        self.etcds.with(|world| {
            let members = world
                .members(process)
                .map_err(|_| "it does not serve".to_owned())?;
            let running = world.running(process).ok_or("it does not serve")?;
            Ok(PeerReport {
                cluster: running.cluster,
                version: world.processes[&process].start.version.clone(),
                members: members.into_iter().map(|member| (member.id, member)).collect(),
            })
        })
    }
}

impl World {
    fn reach(&self, labels: &[String], host: &str) -> Reach {
        let Some(process) = self.hosts.get(host).copied() else {
            return Reach::Refused;
        };
        let is_awake = self
            .processes
            .get(&process)
            .is_some_and(|process| !process.is_stopped);
        if is_awake && self.network.connects(labels, self.labels(process)) {
            Reach::Arrives(process)
        } else {
            Reach::Vanishes
        }
    }
}

impl Line {
    pub(crate) fn failed(&self, call: &'static str, cause: Cause) -> Error {
        Error {
            endpoint: self.url.clone(),
            call,
            cause,
        }
    }

    async fn connect(&self) -> Result<(), Error> {
        self.caller.gate.pass("Connect", Side::Before).await;
        let limit = self.limits.connect;
        let asked = async {
            self.hop("Connect").await?;
            match self.reach() {
                Reach::Arrives(_) => Ok(()),
                Reach::Refused => Err(Cause::ConnectionRefused("connection refused".to_owned())),
                Reach::Vanishes if self.is_stopped() => Ok(()),
                Reach::Vanishes => pending().await,
            }
        };
        let outcome = match tokio::time::timeout(limit, asked).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Cause::Unreachable(format!("not within {limit:?}"))),
        };
        self.caller.gate.pass("Connect", Side::After).await;
        outcome.map_err(|cause| self.failed("Connect", cause))
    }

    /// One call: there, whatever it does there, and back.
    pub(crate) async fn ask<T, F, Fut>(&self, call: &'static str, limit: Duration, run: F) -> Result<T, Error>
    where
        F: FnOnce(ProcessId) -> Fut,
        Fut: Future<Output = Result<T, Cause>>,
    {
        self.caller.gate.pass(call, Side::Before).await;
        let asked = async {
            let fault = self.hop(call).await?;
            let process = match self.reach() {
                Reach::Arrives(process) => process,
                Reach::Refused => return Err(Cause::ConnectionRefused("connection refused".to_owned())),
                Reach::Vanishes => pending().await,
            };
            if !self.etcds.with(|world| world.serves(process)) {
                self.served(process).await?;
            }
            let outcome = run(process).await;
            match fault {
                Some(CallFault::LoseAnswer) => {
                    return Err(Cause::Lost("connection reset by peer".to_owned()));
                }
                Some(CallFault::Silence) => pending().await,
                _ => {}
            }
            let back = self.etcds.with(|world| world.hop(&self.caller.labels, &[]));
            tokio::time::sleep(back).await;
            match self.reach() {
                Reach::Vanishes => pending().await,
                Reach::Arrives(_) | Reach::Refused => outcome,
            }
        };
        let outcome = match tokio::time::timeout(limit, asked).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Cause::NoAnswer(limit)),
        };
        self.caller.gate.pass(call, Side::After).await;
        outcome.map_err(|cause| self.failed(call, cause))
    }

    /// The way there, with what goes wrong on it.
    async fn hop(&self, call: &str) -> Result<Option<CallFault>, Cause> {
        let (hop, (delay, fault)) = self.etcds.with(|world| {
            let there = world.hosts.get(self.url.host()).copied();
            let labels = there
                .map(|there| world.labels(there).to_vec())
                .unwrap_or_default();
            let hop = world.hop(&self.caller.labels, &labels);
            (hop, world.faults.take(call, self.url.host(), &self.caller.labels))
        });
        tokio::time::sleep(hop + delay).await;
        match fault {
            Some(CallFault::LoseRequest) => Err(Cause::Lost("connection reset by peer".to_owned())),
            Some(CallFault::Refuse(rejection)) => Err(Cause::Rejected(rejection)),
            fault => Ok(fault),
        }
    }

    fn reach(&self) -> Reach {
        self.etcds
            .with(|world| world.reach(&self.caller.labels, self.url.host()))
    }

    fn is_stopped(&self) -> bool {
        self.etcds.with(|world| {
            let there = world.hosts.get(self.url.host());
            there.is_some_and(|there| world.network.connects(&self.caller.labels, world.labels(*there)))
        })
    }

    /// Waits until a process answers clients.
    async fn served(&self, process: ProcessId) -> Result<(), Cause> {
        self.etcds
            .until(|world| {
                if !world.processes.contains_key(&process) {
                    return Some(Err(gone()));
                }
                world.serves(process).then_some(Ok(()))
            })
            .await
    }
}

/// What is seen of a process that ends.
pub(crate) fn gone() -> Cause {
    Cause::Lost("connection reset by peer".to_owned())
}

/// etcd's no.
pub(crate) fn no(rejection: Rejection) -> Cause {
    Cause::Rejected(rejection)
}
