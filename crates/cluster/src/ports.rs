//! What the controller needs of the world outside the API server, as traits: real members behind them, or models.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use etcd_operator_api::contract::{FetchProgress, Report};
use etcd_operator_cluster_core::observed_state::QueryResult;
use etcd_operator_etcd::port::{Answer, Dial};

/// Reads what processes in pods report before etcd runs there.
pub trait Reports: fmt::Debug + Send + Sync {
    /// The report of the guard at this address. Once etcd runs there, it answers instead: `OtherResponder`.
    fn read_report(&self, at: IpAddr) -> Answer<'_, QueryResult<Report>>;

    /// How far the download in the pod at this address is.
    fn read_progress(&self, at: IpAddr) -> Answer<'_, QueryResult<FetchProgress>>;
}

/// How members are reached.
#[derive(Clone, Debug)]
pub struct MemberClients {
    /// Members that run.
    pub etcd: Arc<dyn Dial>,
    /// Members that wait.
    pub reports: Arc<dyn Reports>,
}
