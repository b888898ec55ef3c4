//! Google Cloud Storage (GCS) and Azure Blob Storage (ABS), with the crate `object_store`. Its retries are
//! disabled, and `service` inspects every response. Requests that the crate does not offer are sent directly.

mod abs;
mod gcs;
mod service;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use http::Method;
use jiff::Timestamp;
use object_store::azure::{AzureAuthorizer, MicrosoftAzure};
use object_store::client::{HttpRequestBody, HttpService as _};
use object_store::gcp::GoogleCloudStorage;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, GetOptions, GetRange, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions,
    PutOptions, PutPayload,
};

pub use self::abs::AbsConfig;
pub use self::gcs::GcsConfig;
use self::service::{Service, fault};
use crate::backend::{
    Backend, BackendFuture, ByteRange, Etag, ListedObject, ObjectBody, ObjectMetadata, Page, Part,
    PendingUpload, StoreLocation, UnfinishedUpload, UploadId, UploadToken,
};
use crate::error::{Class, Fault};
use crate::key::{Key, percent_encode};
use crate::secret::InvalidConfig;
use crate::xml;

/// The metadata key of the upload token. Azure allows no hyphens in metadata keys.
const MARK: &str = "etcd-operator-upload";
const ABS_MARK: &str = "etcd_operator_upload";

/// Joins the two markers of the next page. No object name contains it.
const MARKER_SEPARATOR: char = '\n';

/// How many names a page of a listing has.
const PAGE_SIZE: usize = 1000;

/// A bucket of GCS or a container of ABS.
#[derive(Clone)]
pub struct Cloud {
    objects: Arc<dyn ObjectStore>,
    uploads: Arc<dyn MultipartStore>,
    provider: Provider,
    service: Service,
    location: StoreLocation,
}

impl fmt::Debug for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cloud")
            .field("location", &self.location)
            .finish_non_exhaustive()
    }
}

/// What requests need that bypass the API of `object_store`.
#[derive(Clone)]
enum Provider {
    Gcs {
        store: GoogleCloudStorage,
        base: String,
    },
    Abs {
        store: MicrosoftAzure,
        base: String,
        account: String,
    },
}

impl Cloud {
    fn fault(&self, error: &object_store::Error) -> Fault {
        fault(error, self.service.redactor())
    }

    async fn begin_upload(&self, key: &Key, mark: &UploadToken) -> Result<UploadId, Fault> {
        let path = path(key)?;
        let id = match self.provider {
            Provider::Gcs { .. } => {
                let mut attributes = Attributes::new();
                attributes.insert(Attribute::Metadata(MARK.into()), mark.0.clone().into());
                let options = PutMultipartOptions {
                    attributes,
                    ..PutMultipartOptions::default()
                };
                self.uploads.create_multipart_opts(&path, options).await
            }
            Provider::Abs { .. } => self.uploads.create_multipart(&path).await,
        };
        id.map(UploadId).map_err(|error| self.fault(&error))
    }

    async fn upload_part(&self, target: &PendingUpload, number: u32, body: Bytes) -> Result<Part, Fault> {
        let path = path(&target.key)?;
        let size = u64::try_from(body.len()).unwrap_or(u64::MAX);
        let index = usize::try_from(number.saturating_sub(1)).unwrap_or(usize::MAX);
        let part = self
            .uploads
            .put_part(&path, &target.id.0, index, PutPayload::from_bytes(body))
            .await
            .map_err(|error| self.fault(&error))?;
        Ok(Part {
            number,
            tag: part.content_id,
            size,
        })
    }

    async fn complete_upload(&self, target: &PendingUpload, parts: &[Part]) -> Result<(), Fault> {
        let path = path(&target.key)?;
        if let Provider::Abs { base, .. } = &self.provider {
            return self.commit_blocks(base, target, parts).await;
        }
        let parts = parts.iter().map(|part| PartId {
            content_id: part.tag.clone(),
        });
        self.uploads
            .complete_multipart(&path, &target.id.0, parts.collect())
            .await
            .map(|_| ())
            .map_err(|error| self.fault(&error))
    }

    async fn abort_upload(&self, target: &PendingUpload) -> Result<(), Fault> {
        let path = path(&target.key)?;
        self.uploads
            .abort_multipart(&path, &target.id.0)
            .await
            .map_err(|error| self.fault(&error))
    }

    async fn head_object(&self, key: &Key) -> Result<ObjectMetadata, Fault> {
        let options = GetOptions {
            head: true,
            ..GetOptions::default()
        };
        let found = self
            .objects
            .get_opts(&path(key)?, options)
            .await
            .map_err(|error| self.fault(&error))?;
        let name = match self.provider {
            Provider::Gcs { .. } => MARK,
            Provider::Abs { .. } => ABS_MARK,
        };
        let mark = found.attributes.get(&Attribute::Metadata(name.into()));
        Ok(ObjectMetadata {
            size: found.meta.size,
            etag: etag(&found.meta)?,
            mark: mark.map(|mark| UploadToken(mark.to_string())),
            modified: modified(&found.meta),
        })
    }

    async fn read_object(
        &self,
        key: &Key,
        range: ByteRange,
        wanted: Option<&Etag>,
    ) -> Result<ObjectBody, Fault> {
        let range = match (range.from, range.to) {
            (0, None) => None,
            (from, None) => Some(GetRange::Offset(from)),
            (from, Some(to)) => Some(GetRange::Bounded(from..to)),
        };
        let options = GetOptions {
            range,
            if_match: wanted.map(|etag| etag.0.clone()),
            ..GetOptions::default()
        };
        let found = self
            .objects
            .get_opts(&path(key)?, options)
            .await
            .map_err(|error| {
                let fault = self.fault(&error);
                match fault.class {
                    Class::Exists => Fault {
                        class: Class::Changed,
                        ..fault
                    },
                    // Some servers send an empty body instead of an error for a range after the end.
                    // `object_store` detects that.
                    _ if crate::net::chain_contains(&error, "Wanted range") => Fault {
                        class: Class::Unsupported,
                        ..fault
                    },
                    _ => fault,
                }
            })?;
        let (etag, length) = (etag(&found.meta)?, found.range.end - found.range.start);
        let redactor = self.service.redactor().clone();
        let body = found
            .into_stream()
            .map(move |piece| piece.map_err(|error| fault(&error, &redactor)));
        Ok(ObjectBody {
            etag,
            length,
            body: Box::pin(body),
        })
    }

    /// Lists objects without `object_store`, whose listings omit an object named exactly like the prefix and
    /// fail on names that it would not write.
    async fn list_objects(&self, prefix: &str, page: Option<&str>) -> Result<Page<ListedObject>, Fault> {
        let prefix = percent_encode(prefix, false);
        let (address, token) = match &self.provider {
            Provider::Gcs { base, .. } => (
                format!("{base}?list-type=2&encoding-type=url&max-keys={PAGE_SIZE}&prefix={prefix}"),
                "continuation-token",
            ),
            Provider::Abs { base, .. } => (
                format!("{base}?restype=container&comp=list&maxresults={PAGE_SIZE}&prefix={prefix}"),
                "marker",
            ),
        };
        let address = match page {
            Some(page) => format!("{address}&{token}={}", percent_encode(page, false)),
            None => address,
        };
        let body = self.send(Method::GET, &address, &[], Bytes::new()).await?;
        let text = String::from_utf8_lossy(&body);
        match &self.provider {
            Provider::Gcs { .. } => xml::parse_object_list(&text),
            Provider::Abs { .. } => xml::parse_blob_list(&text),
        }
    }

    async fn create_object(&self, key: &Key, body: Bytes) -> Result<(), Fault> {
        let options = PutOptions {
            mode: PutMode::Create,
            ..PutOptions::default()
        };
        self.objects
            .put_opts(&path(key)?, PutPayload::from_bytes(body), options)
            .await
            .map(|_| ())
            .map_err(|error| self.fault(&error))
    }

    async fn delete_object(&self, key: &Key) -> Result<(), Fault> {
        let (base, name) = match &self.provider {
            Provider::Gcs { base, .. } | Provider::Abs { base, .. } => {
                (base, percent_encode(key.as_str(), true))
            }
        };
        let address = format!("{base}/{name}");
        self.send(Method::DELETE, &address, &[], Bytes::new())
            .await
            .map(|_| ())
    }

    /// Azure has no listing of uncommitted blocks. It deletes them after a week.
    async fn list_uploads(&self, prefix: &str, page: Option<&str>) -> Result<Page<UnfinishedUpload>, Fault> {
        let Provider::Gcs { base, .. } = &self.provider else {
            return Ok(Page {
                items: Vec::new(),
                next: None,
            });
        };
        let mut address = format!(
            "{base}?uploads&encoding-type=url&prefix={}",
            percent_encode(prefix, false)
        );
        if let Some((key, id)) = page.and_then(|page| page.split_once(MARKER_SEPARATOR)) {
            let (key, id) = (percent_encode(key, false), percent_encode(id, false));
            address = format!("{address}&key-marker={key}&upload-id-marker={id}");
        }
        let body = self.send(Method::GET, &address, &[], Bytes::new()).await?;
        xml::parse_upload_list(&String::from_utf8_lossy(&body), MARKER_SEPARATOR)
    }

    /// Creates the container. Only tests use this; users create their containers themselves.
    #[cfg(feature = "testing")]
    pub async fn create_container(&self) -> Result<(), Fault> {
        let (Provider::Gcs { base, .. } | Provider::Abs { base, .. }) = &self.provider;
        let address = format!("{base}?restype=container");
        self.send(Method::PUT, &address, &[], Bytes::new())
            .await
            .map(|_| ())
    }

    /// Sends a request with the credentials of `object_store`.
    async fn send(
        &self,
        method: Method,
        address: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Bytes, Fault> {
        let bad = |error: http::Error| Fault::new(Class::Unsupported, error.to_string());
        let mut request = http::Request::builder().method(method).uri(address);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(HttpRequestBody::from(body)).map_err(bad)?;
        match &self.provider {
            Provider::Gcs { store, .. } => {
                let credential = store.credentials().get_credential().await;
                let credential = credential.map_err(|error| self.fault(&error))?;
                let value = http::HeaderValue::from_str(&format!("Bearer {}", credential.bearer))
                    .map_err(|error| bad(error.into()))?;
                request.headers_mut().insert(http::header::AUTHORIZATION, value);
            }
            Provider::Abs { store, account, .. } => {
                let credential = store.credentials().get_credential().await;
                let credential = credential.map_err(|error| self.fault(&error))?;
                AzureAuthorizer::new(&credential, account)
                    .try_authorize(&mut request)
                    .map_err(|error| self.fault(&error))?;
            }
        }
        let answer = self.service.call(request).await;
        let response = answer.map_err(|error| service::fault(&error, self.service.redactor()))?;
        let body = response.into_body().bytes().await;
        body.map_err(|error| service::fault(&error, self.service.redactor()))
    }
}

/// Parses the name literally. The conversion of `object_store` would normalize or encode it.
fn path(key: &Key) -> Result<Path, Fault> {
    Path::parse(key.as_str()).map_err(|error| Fault::new(Class::Unsupported, error.to_string()))
}

fn etag(meta: &ObjectMeta) -> Result<Etag, Fault> {
    meta.e_tag
        .clone()
        .map(Etag)
        .ok_or_else(|| Fault::new(Class::Corrupt, "the response contains no ETag of the object"))
}

fn modified(meta: &ObjectMeta) -> Option<Timestamp> {
    Timestamp::from_millisecond(meta.last_modified.timestamp_millis()).ok()
}

fn client_config_error(setting: &str, error: &object_store::Error, service: &Service) -> InvalidConfig {
    let cause = service.redactor().redact(&crate::net::root_cause(error));
    InvalidConfig::new(setting, format!("cannot be used: {cause}"))
}

impl Backend for Cloud {
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
        Box::pin(self.delete_object(key))
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
