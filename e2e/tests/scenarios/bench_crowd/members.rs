//! Members of etcd as the operator meets them: each at an address of its own on loopback, all of them answered by this
//! process. One waits with a report until it has a permit, and then answers as a member of a quiet cluster that is well.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use bytes::Bytes;
use etcd_client::proto::{
    PbAlarmResponse, PbMember, PbMemberListResponse, PbRangeResponse, PbResponseHeader, PbStatusResponse,
};
use etcd_operator_api::contract::{self, Permit, Report};
use etcd_operator_api::names::{CLIENT_PORT, METRICS_PORT};
use etcd_operator_e2e::components::EtcdVersion;
use futures::future::ready;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use prost::Message as _;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

pub const VERSION: EtcdVersion = EtcdVersion::V3_6_16;

/// How many clusters share the third byte of their addresses.
const SUBNET: u16 = 250;
/// The second byte of the first address: far from what else listens on loopback.
const FIRST_SUBNET: u8 = 16;
/// Of every cluster: its leader has been elected once, and nothing is written.
const TERM: u64 = 2;
const INDEX: u64 = 12;
const REVISION: i64 = 1;
const DATABASE: i64 = 20_480;
const QUOTA: i64 = 2 << 30;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const OK: &str = "0";
const UNIMPLEMENTED: &str = "12";

/// One member of one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seat {
    pub cluster: u16,
    pub ordinal: u8,
}

impl Seat {
    /// Where it is reached.
    pub fn address(self) -> Ipv4Addr {
        let [high, low] = [self.cluster / SUBNET, self.cluster % SUBNET].map(u8::try_from);
        let (high, low) = (high.expect("it is small"), low.expect("it is small"));
        Ipv4Addr::new(127, FIRST_SUBNET + high, low, self.ordinal + 1)
    }

    fn at(address: Ipv4Addr) -> Option<Self> {
        let [_, high, low, last] = address.octets();
        Some(Self {
            cluster: u16::from(high.checked_sub(FIRST_SUBNET)?) * SUBNET + u16::from(low),
            ordinal: last.checked_sub(1)?,
        })
    }

    /// Etcd's ID of a member; that of its cluster is the one of the seat before the first.
    fn id(self) -> u64 {
        self.cluster_id() + 1 + u64::from(self.ordinal)
    }

    fn cluster_id(self) -> u64 {
        (u64::from(self.cluster) + 1) << 8
    }
}

/// What a member is doing.
enum Doing {
    Waiting(Box<Report>),
    Serving(Arc<[PbMember]>),
}

/// All members. They end with the last handle to them.
#[derive(Default)]
pub struct Members {
    all: Mutex<HashMap<Seat, Doing>>,
    /// The members of the clusters before this one accept connections and say nothing.
    silent: Mutex<u16>,
}

impl Members {
    /// Listens at every address at once.
    pub async fn listen(self: &Arc<Self>, tasks: &mut JoinSet<Result<()>>) -> Result<()> {
        for port in [CLIENT_PORT, METRICS_PORT] {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await;
            let listener = listener.with_context(|| format!("port {port} of this host is needed"))?;
            let members = Arc::clone(self);
            tasks.spawn(async move {
                loop {
                    match listener.accept().await {
                        Ok((stream, _)) => drop(tokio::spawn(Arc::clone(&members).answer(stream, port))),
                        Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            });
        }
        Ok(())
    }

    /// A member with an empty disk begins to wait.
    pub fn wait(&self, seat: Seat, report: Report) {
        lock(&self.all).insert(seat, Doing::Waiting(Box::new(report)));
    }

    /// A member uses its permit; whether it has not before.
    pub fn start(&self, seat: Seat, permit: &Permit) -> bool {
        let mut all = lock(&self.all);
        match all.get(&seat) {
            Some(Doing::Waiting(report))
                if report.process == permit.process && report.nonce == permit.nonce =>
            {
                all.insert(seat, Doing::Serving(listed(seat, &permit.initial_cluster)));
                true
            }
            _ => false,
        }
    }

    /// The members of so many clusters say nothing from now on, the others answer.
    pub fn silence(&self, clusters: u16) {
        *lock(&self.silent) = clusters;
    }

    async fn answer(self: Arc<Self>, stream: TcpStream, port: u16) {
        let Ok(IpAddr::V4(address)) = stream.local_addr().map(|at| at.ip()) else {
            return;
        };
        let Some(seat) = Seat::at(address) else { return };
        let is_silent = seat.cluster < *lock(&self.silent);
        if is_silent {
            // Until the other side gives up.
            while stream.readable().await.is_ok() && !matches!(stream.try_read(&mut [0; 1024]), Ok(0)) {}
            return;
        }
        let service = service_fn(|request: Request<Incoming>| {
            let members = Arc::clone(&self);
            async move { Ok::<_, Infallible>(members.page(seat, port, request).await) }
        });
        // An error is a client that has closed its connection.
        let _ = auto::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await;
    }

    async fn page(&self, seat: Seat, port: u16, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        // The question of no call matters: each asks what the member always says.
        let _ = request.into_body().collect().await;
        match (lock(&self.all).get(&seat), port) {
            (Some(Doing::Waiting(report)), METRICS_PORT) => plain(contract::write(&**report)),
            (Some(Doing::Serving(_)), CLIENT_PORT) if path == "/version" => plain(versions()),
            (Some(Doing::Serving(members)), CLIENT_PORT) => answered(call(&path, seat, members)),
            _ => {
                let mut response = Response::new(Full::default().boxed_unsync());
                *response.status_mut() = StatusCode::NOT_FOUND;
                response
            }
        }
    }
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Nothing panics while it holds one.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The members of a new cluster, as each of them lists them once all have started.
fn listed(seat: Seat, initial_cluster: &str) -> Arc<[PbMember]> {
    let members = initial_cluster.split(',').filter_map(|entry| {
        let (name, peer) = entry.split_once('=')?;
        let ordinal = name.rsplit_once('-')?.1.parse().ok()?;
        let (host, _) = peer.rsplit_once(':')?;
        Some(PbMember {
            id: Seat { ordinal, ..seat }.id(),
            name: name.to_owned(),
            peer_ur_ls: vec![peer.to_owned()],
            client_ur_ls: vec![format!("{host}:{CLIENT_PORT}")],
            is_learner: false,
        })
    });
    members.collect()
}

fn versions() -> Vec<u8> {
    let server = VERSION.number();
    let minor = server.rsplit_once('.').map_or(server, |(minor, _)| minor);
    json!({"etcdserver": server, "etcdcluster": format!("{minor}.0"), "storage": format!("{minor}.0")})
        .to_string()
        .into_bytes()
}

/// What a member answers to a call of gRPC; nothing to one that the operator does not make of a cluster that is well.
fn call(path: &str, seat: Seat, members: &[PbMember]) -> Option<Vec<u8>> {
    let header = Some(PbResponseHeader {
        cluster_id: seat.cluster_id(),
        member_id: seat.id(),
        revision: REVISION,
        raft_term: TERM,
    });
    Some(match path {
        "/etcdserverpb.Maintenance/Status" => PbStatusResponse {
            header,
            version: VERSION.number().to_owned(),
            db_size: DATABASE,
            db_size_in_use: DATABASE,
            db_size_quota: QUOTA,
            leader: Seat { ordinal: 0, ..seat }.id(),
            raft_index: INDEX,
            raft_applied_index: INDEX,
            raft_term: TERM,
            ..PbStatusResponse::default()
        }
        .encode_to_vec(),
        "/etcdserverpb.Cluster/MemberList" => PbMemberListResponse {
            header,
            members: members.to_vec(),
        }
        .encode_to_vec(),
        "/etcdserverpb.KV/Range" => PbRangeResponse {
            header,
            ..PbRangeResponse::default()
        }
        .encode_to_vec(),
        "/etcdserverpb.Maintenance/Alarm" => PbAlarmResponse {
            header,
            alarms: Vec::new(),
        }
        .encode_to_vec(),
        _ => return None,
    })
}

fn plain(body: Vec<u8>) -> Response<Body> {
    Response::new(Full::from(body).boxed_unsync())
}

/// An answer of gRPC: one message without compression, and its status after it.
fn answered(message: Option<Vec<u8>>) -> Response<Body> {
    let status = if message.is_some() { OK } else { UNIMPLEMENTED };
    let frames = message.map(|message| {
        let length = u32::try_from(message.len()).expect("it is short").to_be_bytes();
        [&[0], &length[..], &message].concat()
    });
    let trailers = HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from_static(status))]);
    let body = Full::from(frames.unwrap_or_default()).with_trailers(ready(Some(Ok(trailers))));
    let mut response = Response::new(body.boxed_unsync());
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}
