//! Alibaba Cloud OSS in its own protocol. Every request is signed (see [`sign`]).

mod endpoint;
mod identity;
mod response;
pub mod sign;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use reqwest::{Method, Response};

use self::endpoint::Endpoint;
use self::identity::Identity;
use self::response::{etag, header};
use self::sign::SignedRequest;
use crate::backend::{
    Backend, BackendFuture, ByteRange, Etag, Kind, ListedObject, ObjectBody, ObjectMetadata, Page, Part,
    PendingUpload, StoreLocation, UnfinishedUpload, UploadId, UploadToken,
};
use crate::digest::content_md5;
use crate::error::{Class, Fault};
use crate::key::{Key, percent_encode};
use crate::platform::Platform;
use crate::secret::{InvalidConfig, Redactor, Secret};
use crate::trust::TrustedRoots;
use crate::{clock, net, xml};

/// The endpoint that the older operator uses if none is configured.
pub const DEFAULT_ENDPOINT: &str = "http://oss-cn-hangzhou.aliyuncs.com";

/// The header that stores the upload token.
const MARK: &str = "x-oss-meta-etcd-operator-upload";

/// Joins the two markers of the next page. No object name contains it.
const MARKER_SEPARATOR: char = '\n';

/// The configuration of an OSS bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OssConfig {
    /// The bucket.
    pub bucket: String,
    /// The endpoint in any of the usual forms. The default is that of the older operator.
    pub endpoint: Option<String>,
    /// The region, if the endpoint does not contain it.
    pub region: Option<String>,
    /// A Secret with the private CA of the endpoint, in the key `ca.crt`.
    pub ca: Option<Secret>,
}

/// A bucket of OSS.
#[derive(Clone, Debug)]
pub struct Oss {
    http: reqwest::Client,
    location: StoreLocation,
    endpoint: Endpoint,
    identity: Arc<Identity>,
    redactor: Redactor,
}

/// A request before it is signed.
struct OssRequest<'a> {
    method: Method,
    key: &'a str,
    query: Vec<(&'a str, &'a str)>,
    headers: Vec<(&'a str, &'a str)>,
    body: Bytes,
}

impl<'a> OssRequest<'a> {
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
    /// Creates a client without sending a request.
    pub fn new(
        config: &OssConfig,
        secret: Option<&Secret>,
        platform: &Platform,
    ) -> Result<Self, InvalidConfig> {
        let text = config.endpoint.as_deref().unwrap_or(DEFAULT_ENDPOINT);
        let endpoint = Endpoint::parse(text, &config.bucket, config.region.as_deref())?;
        let trust = TrustedRoots::new("oss.caSecret", config.ca.as_ref())?;
        let identity = Identity::new(secret, platform, &trust)?;
        Ok(Self {
            http: net::http_client(&trust, net::Proxy::FromEnvironment)?,
            location: StoreLocation {
                kind: Kind::Oss,
                bucket: config.bucket.clone(),
                endpoint: endpoint.display.clone(),
            },
            endpoint,
            redactor: identity.redactor(),
            identity: Arc::new(identity),
        })
    }

    async fn send(&self, request: OssRequest<'_>) -> Result<Response, Fault> {
        let keys = self.identity.keys().await?;
        let pairs = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            let owned = pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            owned.collect()
        };
        let mut signed_request = SignedRequest {
            method: request.method.as_str().to_owned(),
            bucket: self.location.bucket.clone(),
            key: request.key.to_owned(),
            query: pairs(&request.query),
            headers: pairs(&request.headers),
        };
        let at = clock::now();
        sign::add_signature_headers(&mut signed_request, &keys, at);
        let authorization = sign::authorization(&signed_request, &keys, &self.endpoint.region, at);
        let mut address = format!("{}/{}", self.endpoint.base, percent_encode(request.key, true));
        if !signed_request.query.is_empty() {
            address.push('?');
            address.push_str(&sign::encode_query(&signed_request.query));
        }
        let mut builder = self.http.request(request.method.clone(), address);
        for (name, value) in &signed_request.headers {
            builder = builder.header(name, value);
        }
        // POST and PUT requests need a content length even without a body.
        if request.method == Method::PUT || request.method == Method::POST {
            builder = builder
                .header("content-length", request.body.len())
                .body(request.body);
        }
        let response = builder
            .header("authorization", authorization)
            .send()
            .await
            .map_err(|error| response::transport_fault(error, &self.redactor))?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(response::error_fault(response, &self.redactor).await)
    }

    async fn text(&self, request: OssRequest<'_>) -> Result<String, Fault> {
        let response = self.send(request).await?;
        response
            .text()
            .await
            .map_err(|error| response::transport_fault(error, &self.redactor))
    }

    async fn begin_upload(&self, key: &Key, mark: &UploadToken) -> Result<UploadId, Fault> {
        let text = self
            .text(OssRequest {
                query: vec![("uploads", "")],
                headers: vec![(MARK, &mark.0), ("content-type", "application/octet-stream")],
                ..OssRequest::new(Method::POST, key.as_str())
            })
            .await?;
        Ok(UploadId(
            xml::parse::<xml::InitiateUploadResult>(&text)?.upload_id,
        ))
    }

    async fn upload_part(&self, target: &PendingUpload, number: u32, body: Bytes) -> Result<Part, Fault> {
        let size = u64::try_from(body.len()).unwrap_or(u64::MAX);
        let (text, md5) = (number.to_string(), content_md5(&body));
        let response = self
            .send(OssRequest {
                query: vec![("partNumber", &text), ("uploadId", &target.id.0)],
                headers: vec![("content-md5", &md5)],
                body,
                ..OssRequest::new(Method::PUT, target.key.as_str())
            })
            .await?;
        let tag = etag(&response)?.0;
        Ok(Part { number, tag, size })
    }

    async fn complete_upload(&self, target: &PendingUpload, parts: &[Part]) -> Result<(), Fault> {
        let text = self
            .text(OssRequest {
                query: vec![("uploadId", &target.id.0)],
                headers: vec![("content-type", "application/xml")],
                body: Bytes::from(xml::complete_upload_body(parts)),
                ..OssRequest::new(Method::POST, target.key.as_str())
            })
            .await?;
        let completed: xml::CompleteUploadResult = xml::parse(&text)?;
        if completed.etag.is_empty() {
            return Err(Fault::new(Class::Transient, "the response contains no ETag"));
        }
        Ok(())
    }

    async fn abort_upload(&self, target: &PendingUpload) -> Result<(), Fault> {
        self.send(OssRequest {
            query: vec![("uploadId", &target.id.0)],
            ..OssRequest::new(Method::DELETE, target.key.as_str())
        })
        .await
        .map(|_| ())
    }

    async fn head_object(&self, key: &Key) -> Result<ObjectMetadata, Fault> {
        let response = self.send(OssRequest::new(Method::HEAD, key.as_str())).await?;
        let size = header(&response, "content-length").and_then(|length| length.parse().ok());
        Ok(ObjectMetadata {
            size: size
                .ok_or_else(|| Fault::new(Class::Corrupt, "the response contains no size of the object"))?,
            etag: etag(&response)?,
            mark: header(&response, MARK).map(|mark| UploadToken(mark.to_owned())),
            modified: header(&response, "last-modified").and_then(xml::parse_http_time),
        })
    }

    async fn read_object(
        &self,
        key: &Key,
        range: ByteRange,
        wanted: Option<&Etag>,
    ) -> Result<ObjectBody, Fault> {
        let range = range.header();
        // Without this header, OSS ignores a range that starts after the end and sends the whole object.
        let mut headers = vec![("x-oss-range-behavior", "standard")];
        headers.extend(range.as_deref().map(|range| ("range", range)));
        headers.extend(wanted.map(|etag| ("if-match", etag.0.as_str())));
        let request = OssRequest {
            headers,
            ..OssRequest::new(Method::GET, key.as_str())
        };
        let response = self.send(request).await.map_err(|fault| match fault.class {
            Class::Exists => Fault {
                class: Class::Changed,
                ..fault
            },
            _ => fault,
        })?;
        let length = response
            .content_length()
            .ok_or_else(|| Fault::new(Class::Corrupt, "the response contains no length"))?;
        if range.is_some() && response.status().as_u16() != 206 {
            return Err(Fault::new(
                Class::Corrupt,
                "the store sends the whole object instead of the range",
            ));
        }
        let redactor = self.redactor.clone();
        let etag = etag(&response)?;
        let body = response
            .bytes_stream()
            .map(move |piece| piece.map_err(|error| net::connection_fault(&error.without_url(), &redactor)));
        Ok(ObjectBody {
            etag,
            length,
            body: Box::pin(body),
        })
    }

    async fn list_objects(&self, prefix: &str, page: Option<&str>) -> Result<Page<ListedObject>, Fault> {
        let mut query = vec![
            ("list-type", "2"),
            ("encoding-type", "url"),
            ("max-keys", "1000"),
            ("prefix", prefix),
        ];
        query.extend(page.map(|page| ("continuation-token", page)));
        let text = self
            .text(OssRequest {
                query,
                ..OssRequest::new(Method::GET, "")
            })
            .await?;
        xml::parse_object_list(&text)
    }

    async fn create_object(&self, key: &Key, body: Bytes) -> Result<(), Fault> {
        let md5 = content_md5(&body);
        self.send(OssRequest {
            headers: vec![("x-oss-forbid-overwrite", "true"), ("content-md5", &md5)],
            body,
            ..OssRequest::new(Method::PUT, key.as_str())
        })
        .await
        .map(|_| ())
    }

    async fn list_uploads(&self, prefix: &str, page: Option<&str>) -> Result<Page<UnfinishedUpload>, Fault> {
        let mut query = vec![
            ("uploads", ""),
            ("encoding-type", "url"),
            ("max-uploads", "1000"),
            ("prefix", prefix),
        ];
        if let Some((key, id)) = page.and_then(|page| page.split_once(MARKER_SEPARATOR)) {
            query.extend([("key-marker", key), ("upload-id-marker", id)]);
        }
        let text = self
            .text(OssRequest {
                query,
                ..OssRequest::new(Method::GET, "")
            })
            .await?;
        xml::parse_upload_list(&text, MARKER_SEPARATOR)
    }
}

impl Backend for Oss {
    fn location(&self) -> &StoreLocation {
        &self.location
    }

    fn begin<'a>(&'a self, key: &'a Key, mark: &'a UploadToken) -> BackendFuture<'a, UploadId> {
        Box::pin(self.begin_upload(key, mark))
    }

    fn upload_part<'a>(
        &'a self,
        target: &'a PendingUpload,
        number: u32,
        body: Bytes,
    ) -> BackendFuture<'a, Part> {
        Box::pin(Self::upload_part(self, target, number, body))
    }

    fn complete<'a>(&'a self, target: &'a PendingUpload, parts: &'a [Part]) -> BackendFuture<'a, ()> {
        Box::pin(self.complete_upload(target, parts))
    }

    fn abort<'a>(&'a self, target: &'a PendingUpload) -> BackendFuture<'a, ()> {
        Box::pin(self.abort_upload(target))
    }

    fn head<'a>(&'a self, key: &'a Key) -> BackendFuture<'a, ObjectMetadata> {
        Box::pin(self.head_object(key))
    }

    fn read<'a>(
        &'a self,
        key: &'a Key,
        range: ByteRange,
        etag: Option<&'a Etag>,
    ) -> BackendFuture<'a, ObjectBody> {
        Box::pin(self.read_object(key, range, etag))
    }

    fn list<'a>(&'a self, prefix: &'a str, page: Option<&'a str>) -> BackendFuture<'a, Page<ListedObject>> {
        Box::pin(self.list_objects(prefix, page))
    }

    fn delete<'a>(&'a self, key: &'a Key) -> BackendFuture<'a, ()> {
        Box::pin(async move {
            let request = OssRequest::new(Method::DELETE, key.as_str());
            self.send(request).await.map(|_| ())
        })
    }

    fn create<'a>(&'a self, key: &'a Key, body: Bytes) -> BackendFuture<'a, ()> {
        Box::pin(self.create_object(key, body))
    }

    fn list_uploads<'a>(
        &'a self,
        prefix: &'a str,
        page: Option<&'a str>,
    ) -> BackendFuture<'a, Page<UnfinishedUpload>> {
        Box::pin(Self::list_uploads(self, prefix, page))
    }
}
