//! Alibaba Cloud OSS in its own protocol: nothing but requests, each signed anew. The signature is in `sign`.

mod answer;
mod endpoint;
mod identity;
pub mod sign;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use reqwest::{Method, Response};

use self::answer::{etag, header};
use self::endpoint::Endpoint;
use self::identity::Identity;
use self::sign::Signable;
use crate::digest::content_md5;
use crate::error::{Class, Fault};
use crate::key::{Key, percent};
use crate::platform::Platform;
use crate::port::{
    Answer, Begun, Entry, Etag, Kind, Mark, Meta, Page, Part, Place, Port, Reading, Span, Target, UploadId,
};
use crate::secret::{BadConfig, Censor, Secret};
use crate::trust::Trust;
use crate::{clock, net, xml};

/// Where the older operator looked when the user named no endpoint.
pub const DEFAULT_ENDPOINT: &str = "http://oss-cn-hangzhou.aliyuncs.com";

/// The header of the mark on an object.
const MARK: &str = "x-oss-meta-etcd-operator-upload";

/// Separates the two halves of a page's name; no key holds it.
const BETWEEN: char = '\n';

/// A bucket of OSS, as users describe it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OssConfig {
    /// The bucket.
    pub bucket: String,
    /// The endpoint in any form people write it; the older operator's default without.
    pub endpoint: Option<String>,
    /// The region, where the endpoint does not tell it.
    pub region: Option<String>,
    /// A Secret with a private authority of the endpoint, in the key `ca.crt`.
    pub ca: Option<Secret>,
}

/// A bucket of OSS.
#[derive(Clone, Debug)]
pub struct Oss {
    http: reqwest::Client,
    place: Place,
    endpoint: Endpoint,
    identity: Arc<Identity>,
    censor: Censor,
}

/// A request before it is signed.
struct Ask<'a> {
    method: Method,
    key: &'a str,
    query: Vec<(&'a str, &'a str)>,
    headers: Vec<(&'a str, &'a str)>,
    body: Bytes,
}

impl<'a> Ask<'a> {
    fn new(method: Method, key: &'a str) -> Self {
        Self {
            method,
            key,
            query: Vec::new(),
            headers: Vec::new(),
            body: Bytes::new(),
        }
    }
}

impl Oss {
    /// Makes a client; nothing is sent.
    pub fn new(config: &OssConfig, secret: Option<&Secret>, platform: &Platform) -> Result<Self, BadConfig> {
        let text = config.endpoint.as_deref().unwrap_or(DEFAULT_ENDPOINT);
        let endpoint = Endpoint::read(text, &config.bucket, config.region.as_deref())?;
        let trust = Trust::new("oss.caSecret", config.ca.as_ref())?;
        let http = net::client(&trust)?;
        let identity = Identity::new(secret, platform, http.clone())?;
        Ok(Self {
            http,
            place: Place {
                kind: Kind::Oss,
                bucket: config.bucket.clone(),
                endpoint: endpoint.shown.clone(),
            },
            endpoint,
            censor: identity.censor(),
            identity: Arc::new(identity),
        })
    }

    async fn send(&self, ask: Ask<'_>) -> Result<Response, Fault> {
        let keys = self.identity.keys().await?;
        let pairs = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            let owned = pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            owned.collect()
        };
        let mut signable = Signable {
            method: ask.method.as_str().to_owned(),
            bucket: self.place.bucket.clone(),
            key: ask.key.to_owned(),
            query: pairs(&ask.query),
            headers: pairs(&ask.headers),
        };
        let at = clock::now();
        sign::prepare(&mut signable, &keys, at);
        let authorization = sign::authorization(&signable, &keys, &self.endpoint.region, at);
        let mut address = format!("{}/{}", self.endpoint.base, percent(ask.key, true));
        if !signable.query.is_empty() {
            address.push('?');
            address.push_str(&sign::encoded(&signable.query));
        }
        let mut request = self.http.request(ask.method.clone(), address);
        for (name, value) in &signable.headers {
            request = request.header(name, value);
        }
        // A POST or PUT without a body still says how long it is.
        if ask.method == Method::PUT || ask.method == Method::POST {
            request = request.header("content-length", ask.body.len()).body(ask.body);
        }
        let response = request
            .header("authorization", authorization)
            .send()
            .await
            .map_err(|error| answer::broken(error, &self.censor))?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(answer::refusal(response, &self.censor).await)
    }

    async fn text(&self, ask: Ask<'_>) -> Result<String, Fault> {
        let response = self.send(ask).await?;
        response
            .text()
            .await
            .map_err(|error| answer::broken(error, &self.censor))
    }

    async fn begin_upload(&self, key: &Key, mark: &Mark) -> Result<UploadId, Fault> {
        let text = self
            .text(Ask {
                query: vec![("uploads", "")],
                headers: vec![(MARK, &mark.0), ("content-type", "application/octet-stream")],
                ..Ask::new(Method::POST, key.as_str())
            })
            .await?;
        Ok(UploadId(xml::read::<xml::Initiated>(&text)?.upload_id))
    }

    async fn upload_part(&self, target: &Target, number: u32, body: Bytes) -> Result<Part, Fault> {
        let size = u64::try_from(body.len()).unwrap_or(u64::MAX);
        let (text, md5) = (number.to_string(), content_md5(&body));
        let response = self
            .send(Ask {
                query: vec![("partNumber", &text), ("uploadId", &target.id.0)],
                headers: vec![("content-md5", &md5)],
                body,
                ..Ask::new(Method::PUT, target.key.as_str())
            })
            .await?;
        let tag = etag(&response)?.0;
        Ok(Part { number, tag, size })
    }

    async fn complete_upload(&self, target: &Target, parts: &[Part]) -> Result<(), Fault> {
        let text = self
            .text(Ask {
                query: vec![("uploadId", &target.id.0)],
                headers: vec![("content-type", "application/xml")],
                body: Bytes::from(xml::completion(parts)),
                ..Ask::new(Method::POST, target.key.as_str())
            })
            .await?;
        let completed: xml::Completed = xml::read(&text)?;
        if completed.etag.is_empty() {
            return Err(Fault::new(Class::Transient, "the answer names no ETag"));
        }
        Ok(())
    }

    async fn abort_upload(&self, target: &Target) -> Result<(), Fault> {
        self.send(Ask {
            query: vec![("uploadId", &target.id.0)],
            ..Ask::new(Method::DELETE, target.key.as_str())
        })
        .await
        .map(|_| ())
    }

    async fn head_object(&self, key: &Key) -> Result<Meta, Fault> {
        let response = self.send(Ask::new(Method::HEAD, key.as_str())).await?;
        let size = header(&response, "content-length").and_then(|length| length.parse().ok());
        Ok(Meta {
            size: size.ok_or_else(|| Fault::new(Class::Corrupt, "the store gave the object no size"))?,
            etag: etag(&response)?,
            mark: header(&response, MARK).map(|mark| Mark(mark.to_owned())),
            modified: header(&response, "last-modified").and_then(xml::http_time),
        })
    }

    async fn read_object(&self, key: &Key, span: Span, wanted: Option<&Etag>) -> Result<Reading, Fault> {
        let range = span.header();
        // Without this a range behind the end gives the whole object.
        let mut headers = vec![("x-oss-range-behavior", "standard")];
        headers.extend(range.as_deref().map(|range| ("range", range)));
        headers.extend(wanted.map(|etag| ("if-match", etag.0.as_str())));
        let ask = Ask {
            headers,
            ..Ask::new(Method::GET, key.as_str())
        };
        let response = self.send(ask).await.map_err(|fault| match fault.class {
            Class::Exists => Fault {
                class: Class::Changed,
                ..fault
            },
            _ => fault,
        })?;
        let length = response
            .content_length()
            .ok_or_else(|| Fault::new(Class::Corrupt, "the store does not say how much it sends"))?;
        if range.is_some() && response.status().as_u16() != 206 {
            return Err(Fault::new(
                Class::Corrupt,
                "the store sends the whole object instead of a range",
            ));
        }
        let censor = self.censor.clone();
        let etag = etag(&response)?;
        let body = response
            .bytes_stream()
            .map(move |piece| piece.map_err(|error| net::fault(&error.without_url(), &censor)));
        Ok(Reading {
            etag,
            length,
            body: Box::pin(body),
        })
    }

    async fn list_objects(&self, prefix: &str, page: Option<&str>) -> Result<Page<Entry>, Fault> {
        let mut query = vec![
            ("list-type", "2"),
            ("encoding-type", "url"),
            ("max-keys", "1000"),
            ("prefix", prefix),
        ];
        query.extend(page.map(|page| ("continuation-token", page)));
        let text = self
            .text(Ask {
                query,
                ..Ask::new(Method::GET, "")
            })
            .await?;
        xml::objects(&text)
    }

    async fn create_object(&self, key: &Key, body: Bytes) -> Result<(), Fault> {
        let md5 = content_md5(&body);
        self.send(Ask {
            headers: vec![("x-oss-forbid-overwrite", "true"), ("content-md5", &md5)],
            body,
            ..Ask::new(Method::PUT, key.as_str())
        })
        .await
        .map(|_| ())
    }

    async fn list_begun(&self, prefix: &str, page: Option<&str>) -> Result<Page<Begun>, Fault> {
        let mut query = vec![
            ("uploads", ""),
            ("encoding-type", "url"),
            ("max-uploads", "1000"),
            ("prefix", prefix),
        ];
        if let Some((key, id)) = page.and_then(|page| page.split_once(BETWEEN)) {
            query.extend([("key-marker", key), ("upload-id-marker", id)]);
        }
        let text = self
            .text(Ask {
                query,
                ..Ask::new(Method::GET, "")
            })
            .await?;
        xml::uploads(&text, BETWEEN)
    }
}

impl Port for Oss {
    fn place(&self) -> &Place {
        &self.place
    }

    fn begin<'a>(&'a self, key: &'a Key, mark: &'a Mark) -> Answer<'a, UploadId> {
        Box::pin(self.begin_upload(key, mark))
    }

    fn part<'a>(&'a self, target: &'a Target, number: u32, body: Bytes) -> Answer<'a, Part> {
        Box::pin(self.upload_part(target, number, body))
    }

    fn complete<'a>(&'a self, target: &'a Target, parts: &'a [Part]) -> Answer<'a, ()> {
        Box::pin(self.complete_upload(target, parts))
    }

    fn abort<'a>(&'a self, target: &'a Target) -> Answer<'a, ()> {
        Box::pin(self.abort_upload(target))
    }

    fn head<'a>(&'a self, key: &'a Key) -> Answer<'a, Meta> {
        Box::pin(self.head_object(key))
    }

    fn read<'a>(&'a self, key: &'a Key, span: Span, etag: Option<&'a Etag>) -> Answer<'a, Reading> {
        Box::pin(self.read_object(key, span, etag))
    }

    fn list<'a>(&'a self, prefix: &'a str, page: Option<&'a str>) -> Answer<'a, Page<Entry>> {
        Box::pin(self.list_objects(prefix, page))
    }

    fn delete<'a>(&'a self, key: &'a Key) -> Answer<'a, ()> {
        Box::pin(async move {
            let ask = Ask::new(Method::DELETE, key.as_str());
            self.send(ask).await.map(|_| ())
        })
    }

    fn create<'a>(&'a self, key: &'a Key, body: Bytes) -> Answer<'a, ()> {
        Box::pin(self.create_object(key, body))
    }

    fn begun<'a>(&'a self, prefix: &'a str, page: Option<&'a str>) -> Answer<'a, Page<Begun>> {
        Box::pin(self.list_begun(prefix, page))
    }
}
