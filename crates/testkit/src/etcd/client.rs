//! A client of one member, for keys: what users do with a cluster.

use etcd_operator_etcd::endpoint::Limits;
use etcd_operator_etcd::error::Error;
use etcd_operator_etcd::id::Revision;
use etcd_operator_etcd::status::Position;
use etcd_operator_etcd::url::ClientUrl;

use super::Etcds;
use super::line::{Caller, Line};

/// Keys with their values, in the order in which they were written.
pub type Keys = Vec<(String, String)>;

/// A client of one member.
#[derive(Clone, Debug)]
pub struct Client(Line);

impl Client {
    /// A client of whoever answers at this address.
    pub fn new(etcds: &Etcds, caller: Caller, url: ClientUrl, limits: Limits) -> Self {
        Self(Line {
            etcds: etcds.clone(),
            caller,
            url,
            limits,
        })
    }

    /// Writes a key. An error does not mean that it was not written.
    pub async fn put(&self, key: &str, value: &str) -> Result<Position, Error> {
        let line = &self.0;
        line.ask("Put", line.limits.call, |process| {
            line.etcds.written(process, key, value)
        })
        .await
    }

    /// Reads a key behind a quorum.
    pub async fn get(&self, key: &str) -> Result<(Position, Option<String>), Error> {
        let line = &self.0;
        line.ask("Range", line.limits.call, |process| async move {
            let position = line.etcds.read(process).await?;
            let value = line.etcds.with(|world| {
                let running = world.running(process)?;
                running.applied.value(key).map(ToString::to_string)
            });
            Ok((position, value))
        })
        .await
    }

    /// Reads every key behind a quorum.
    pub async fn all(&self) -> Result<(Position, Keys), Error> {
        let line = &self.0;
        line.ask("Range", line.limits.call, |process| async move {
            let position = line.etcds.read(process).await?;
            let keys = line.etcds.with(|world| {
                let writes = world
                    .running(process)
                    .map(|running| running.applied.writes.clone());
                let writes = writes.unwrap_or_default().into_iter();
                writes
                    .map(|(key, value)| (key.to_string(), value.to_string()))
                    .collect()
            });
            Ok((position, keys))
        })
        .await
    }

    /// Drops history.
    pub async fn compact(&self, revision: Revision) -> Result<Position, Error> {
        let line = &self.0;
        line.ask("Compact", line.limits.call, |process| {
            line.etcds.compacted(process, revision)
        })
        .await
    }
}
