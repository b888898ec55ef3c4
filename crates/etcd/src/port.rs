//! What callers need of a member and of reaching one, as traits: a process of etcd behind them, or a model of one. What
//! takes several calls is made of them here, so that a model answers no more than the calls.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use crate::client::peer_http::{self, PeerReport};
use crate::client::{Added, Client};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::id::{MemberId, Revision};
use crate::membership::{Known, Listed, Member, Membership, Unknown};
use crate::rejection::Rejection;
use crate::status::{Alarm, KeysHash, Position, Status};
use crate::url::{ClientUrl, PeerUrl};
use crate::version::Version;

/// A future with the answer to a call.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The members after a change.
pub type Members = BTreeMap<MemberId, Member>;

/// Reaches members, to call them as a client or to query them at their peer URLs.
pub trait Dial: fmt::Debug + Send + Sync {
    /// Connects to a member at its client URL: [`Client::connect`]
    fn dial<'a>(&'a self, endpoint: &'a Endpoint) -> Answer<'a, Result<Box<dyn Port>, Error>>;
    /// Queries a member at its peer URL: [`peer_http::query`]
    fn query_as_peer<'a>(
        &'a self,
        peer: &'a PeerUrl,
        limit: Duration,
    ) -> Answer<'a, Result<PeerReport, String>>;
}

/// A connection to one member. What each call does is documented at [`Client`].
pub trait Port: fmt::Debug + Send + Sync {
    /// Whom it asks.
    fn url(&self) -> &ClientUrl;
    /// Who the members are, from a linearizable read by this member. Its own list alone would not do, as it may be old
    /// on any version. After the read it is at least as new as that. A failed call is [`Membership::Unknown`].
    fn membership(&self) -> Answer<'_, Membership> {
        Box::pin(async {
            match read_membership(self).await {
                Ok(known) => Membership::Known(known),
                Err(why) => Membership::Unknown(why),
            }
        })
    }
    /// [`Client::listed`]
    fn listed(&self) -> Answer<'_, Result<Listed, Error>>;
    /// [`Client::add_voter`]
    fn add_voter<'a>(&'a self, urls: &'a [PeerUrl]) -> Answer<'a, Result<Added, Error>>;
    /// [`Client::add_learner`]
    fn add_learner<'a>(&'a self, urls: &'a [PeerUrl]) -> Answer<'a, Result<Added, Error>>;
    /// [`Client::promote`]
    fn promote(&self, learner: MemberId) -> Answer<'_, Result<Members, Error>>;
    /// [`Client::remove`]
    fn remove(&self, member: MemberId) -> Answer<'_, Result<Members, Error>>;
    /// [`Client::update`]
    fn update<'a>(&'a self, member: &'a Member, urls: &'a [PeerUrl]) -> Answer<'a, Result<Members, Error>>;
    /// [`Client::position`]
    fn position(&self) -> Answer<'_, Result<Position, Error>>;
    /// [`Client::local_position`]
    fn local_position(&self) -> Answer<'_, Result<Position, Error>>;
    /// [`Client::status`]
    fn status(&self) -> Answer<'_, Result<Status, Error>>;
    /// [`Client::cluster_version`]
    fn cluster_version(&self) -> Answer<'_, Result<Option<Version>, Error>>;
    /// [`Client::is_auth_enabled`]
    fn is_auth_enabled(&self) -> Answer<'_, Result<bool, Error>>;
    /// [`Client::alarms`]
    fn alarms(&self) -> Answer<'_, Result<BTreeSet<Alarm>, Error>>;
    /// [`Client::write_log_entries`]
    fn write_log_entries(&self, count: u64) -> Answer<'_, Result<(), Error>>;
    /// [`Client::disarm`]
    fn disarm(&self, alarm: Alarm) -> Answer<'_, Result<(), Error>>;
    /// [`Client::move_leader`]
    fn move_leader(&self, to: MemberId) -> Answer<'_, Result<(), Error>>;
    /// [`Client::validate_downgrade`]
    fn validate_downgrade<'a>(&'a self, target: &'a Version) -> Answer<'a, Result<(), Error>>;
    /// [`Client::enable_downgrade`]
    fn enable_downgrade<'a>(&'a self, target: &'a Version) -> Answer<'a, Result<(), Error>>;
    /// [`Client::cancel_downgrade`]
    fn cancel_downgrade(&self) -> Answer<'_, Result<(), Error>>;
    /// [`Client::defragment`]
    fn defragment(&self, limit: Duration) -> Answer<'_, Result<(), Error>>;
    /// [`Client::hash_keys`]
    fn hash_keys(&self, at: Option<Revision>, limit: Duration) -> Answer<'_, Result<KeysHash, Error>>;
}

/// Reads the position, the list and the status, in this order: only a list that is read after the linearizable read is
/// at least as new as that.
async fn read_membership<P: Port + ?Sized>(port: &P) -> Result<Known, Unknown> {
    let barrier = match port.position().await {
        Err(error) if error.rejection() == Some(&Rejection::NotForLearners) => {
            return Err(Unknown::ReaderIsLearner(port.url().clone()));
        }
        other => other?,
    };
    let listed = port.listed().await?;
    let status = port.status().await?;
    Known::judge(port.url(), barrier, listed, status)
}

/// Reaches processes of etcd over the network.
#[derive(Clone, Copy, Debug, Default)]
pub struct Network;

impl Dial for Network {
    fn dial<'a>(&'a self, endpoint: &'a Endpoint) -> Answer<'a, Result<Box<dyn Port>, Error>> {
        Box::pin(async move {
            let client = Client::connect(endpoint).await?;
            Ok(Box::new(client) as Box<dyn Port>)
        })
    }

    fn query_as_peer<'a>(
        &'a self,
        peer: &'a PeerUrl,
        limit: Duration,
    ) -> Answer<'a, Result<PeerReport, String>> {
        Box::pin(peer_http::query(peer, limit))
    }
}

impl Port for Client {
    fn url(&self) -> &ClientUrl {
        Client::url(self)
    }

    fn listed(&self) -> Answer<'_, Result<Listed, Error>> {
        Box::pin(Client::listed(self))
    }

    fn add_voter<'a>(&'a self, urls: &'a [PeerUrl]) -> Answer<'a, Result<Added, Error>> {
        Box::pin(Client::add_voter(self, urls))
    }

    fn add_learner<'a>(&'a self, urls: &'a [PeerUrl]) -> Answer<'a, Result<Added, Error>> {
        Box::pin(Client::add_learner(self, urls))
    }

    fn promote(&self, learner: MemberId) -> Answer<'_, Result<Members, Error>> {
        Box::pin(Client::promote(self, learner))
    }

    fn remove(&self, member: MemberId) -> Answer<'_, Result<Members, Error>> {
        Box::pin(Client::remove(self, member))
    }

    fn update<'a>(&'a self, member: &'a Member, urls: &'a [PeerUrl]) -> Answer<'a, Result<Members, Error>> {
        Box::pin(Client::update(self, member, urls))
    }

    fn position(&self) -> Answer<'_, Result<Position, Error>> {
        Box::pin(Client::position(self))
    }

    fn local_position(&self) -> Answer<'_, Result<Position, Error>> {
        Box::pin(Client::local_position(self))
    }

    fn status(&self) -> Answer<'_, Result<Status, Error>> {
        Box::pin(Client::status(self))
    }

    fn cluster_version(&self) -> Answer<'_, Result<Option<Version>, Error>> {
        Box::pin(Client::cluster_version(self))
    }

    fn is_auth_enabled(&self) -> Answer<'_, Result<bool, Error>> {
        Box::pin(Client::is_auth_enabled(self))
    }

    fn alarms(&self) -> Answer<'_, Result<BTreeSet<Alarm>, Error>> {
        Box::pin(Client::alarms(self))
    }

    fn write_log_entries(&self, count: u64) -> Answer<'_, Result<(), Error>> {
        Box::pin(Client::write_log_entries(self, count))
    }

    fn disarm(&self, alarm: Alarm) -> Answer<'_, Result<(), Error>> {
        Box::pin(Client::disarm(self, alarm))
    }

    fn move_leader(&self, to: MemberId) -> Answer<'_, Result<(), Error>> {
        Box::pin(Client::move_leader(self, to))
    }

    fn validate_downgrade<'a>(&'a self, target: &'a Version) -> Answer<'a, Result<(), Error>> {
        Box::pin(Client::validate_downgrade(self, target))
    }

    fn enable_downgrade<'a>(&'a self, target: &'a Version) -> Answer<'a, Result<(), Error>> {
        Box::pin(Client::enable_downgrade(self, target))
    }

    fn cancel_downgrade(&self) -> Answer<'_, Result<(), Error>> {
        Box::pin(Client::cancel_downgrade(self))
    }

    fn defragment(&self, limit: Duration) -> Answer<'_, Result<(), Error>> {
        Box::pin(Client::defragment(self, limit))
    }

    fn hash_keys(&self, at: Option<Revision>, limit: Duration) -> Answer<'_, Result<KeysHash, Error>> {
        Box::pin(Client::hash_keys(self, at, limit))
    }
}
