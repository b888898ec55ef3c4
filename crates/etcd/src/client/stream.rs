//! The stream of a snapshot: one member's database as it is at one moment, piece by piece, then its hash. It cannot be
//! taken up again where it broke, as the next one is of another moment. What is not taken here waits at the member.

use std::time::Duration;

use bytes::Bytes;
use etcd_client::SnapshotStreaming;

use super::Client;
use crate::error::Error;

const SNAPSHOT: &str = "Snapshot";

/// A snapshot that is being received. After an error it cannot be continued; another one has other data.
#[derive(Debug)]
pub struct Snapshot {
    pieces: SnapshotStreaming,
    client: Client,
    idle: Duration,
}

impl Client {
    /// Begins a snapshot of this member's database. Learners give one, too. No piece may take longer than `idle`.
    pub async fn snapshot(&self, idle: Duration) -> Result<Snapshot, Error> {
        let mut maintenance = self.etcd.maintenance_client();
        let limit = self.limits.call.max(idle);
        let pieces = self.call_within(SNAPSHOT, maintenance.snapshot(), limit).await?;
        Ok(Snapshot {
            pieces,
            client: self.clone(),
            idle,
        })
    }
}

impl Snapshot {
    /// The next piece, or `None` at the end. The last piece is the hash.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let piece = self
            .client
            .call_within(SNAPSHOT, self.pieces.message(), self.idle)
            .await?;
        Ok(piece.map(|piece| Bytes::from(piece.0.blob)))
    }
}
