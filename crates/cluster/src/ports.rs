//! What the controller needs of the world outside the API server, as traits: real members behind them, or models.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use etcd_operator_api::contract::{FetchProgress, Report};
use etcd_operator_etcd::port::{Answer, Dial};

use crate::world::Asked;

/// Asks processes that wait in pods for their reports.
pub trait Reports: fmt::Debug + Send + Sync {
    /// What waits at this address says, if anything waits there.
    fn ask(&self, at: IpAddr) -> Answer<'_, Asked<Report>>;

    /// How far the download at this address is, if one goes on there.
    fn progress(&self, at: IpAddr) -> Answer<'_, Asked<FetchProgress>>;
}

/// How members are reached.
#[derive(Clone, Debug)]
pub struct Reach {
    /// Members that run.
    pub etcd: Arc<dyn Dial>,
    /// Members that wait.
    pub reports: Arc<dyn Reports>,
}
