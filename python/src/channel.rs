//! Channels, as `commonhold/_channel.py` uses them.

use crate::errors::{OrRaise, waiting};
use crate::exports::View;
use crate::host::Host;
use crate::object::{Object, Opened};
use crate::options::natural;
use crate::pages::Pages;
use crate::patience::patiently;
use commonhold::{Access, Error};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Mutex, PoisonError};

/// An open channel.
#[pyclass(module = "commonhold._native", frozen)]
pub(crate) struct Channel {
    /// None once it was closed. Only ever locked for an instant.
    channel: Mutex<Option<commonhold::Channel>>,
}

impl Channel {
    fn new(channel: commonhold::Channel) -> Self {
        Channel { channel: Mutex::new(Some(channel)) }
    }

    fn get(&self, py: Python<'_>) -> PyResult<commonhold::Channel> {
        let channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner).clone();
        channel
            .ok_or_else(|| Error::invalid("the channel was closed by this program: open it again"))
            .or_raise(py)
    }
}

/// A copy of what a buffer shows, which other threads may write meanwhile.
fn unchanging(data: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let view = View::contiguous(data)?;
    let mut copy = vec![0_u8; view.nbytes()];
    // SAFETY: the view shows that many readable bytes, and the copy has as many; they cannot
    // overlap.
    unsafe { std::ptr::copy_nonoverlapping(view.start(), copy.as_mut_ptr(), copy.len()) };
    Ok(copy)
}

/// Kind, bytes in line, landing (0: none) and the bytes that landed there, object that came.
type Message<'py> = (u32, Bound<'py, PyBytes>, u64, u64, Option<Object>);

/// An `Object`, or the object that `Pages` are of.
fn object_of(py: Python<'_>, of: &Bound<'_, PyAny>) -> PyResult<commonhold::Object> {
    match of.cast::<Pages>() {
        Ok(pages) => Ok(pages.get().opened().object.clone()),
        Err(_) => Ok(of.cast::<Object>()?.get().opened(py)?.object),
    }
}

#[pymethods]
impl Channel {
    #[staticmethod]
    fn open(py: Python<'_>, host: &Host, name: String) -> PyResult<Channel> {
        let host = host.host.clone();
        Ok(Channel::new(waiting(py, move || commonhold::Channel::open(&host, &name))?))
    }

    #[staticmethod]
    fn create(
        py: Python<'_>,
        host: &Host,
        name: String,
        #[pyo3(from_py_with = natural)] capacity_bytes: u64,
        translation: &str,
        #[pyo3(from_py_with = natural)] permissions: u32,
    ) -> PyResult<Channel> {
        let translation = crate::options::translation(translation).or_raise(py)?;
        let options = commonhold::ChannelOptions { capacity_bytes, translation, mode: permissions };
        let host = host.host.clone();
        Ok(Channel::new(waiting(py, move || commonhold::Channel::create(&host, &name, &options))?))
    }

    #[getter]
    fn closed(&self) -> bool {
        self.channel.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    #[getter]
    fn most_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.get(py)?.most_bytes())
    }

    fn send(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = natural)] kind: u32,
        data: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let (channel, bytes) = (self.get(py)?, unchanging(data)?);
        patiently(py, timeout, |deadline| channel.send(kind, &bytes, deadline))
    }

    fn receive<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Message<'py>> {
        let channel = self.get(py)?;
        let message = patiently(py, timeout, |deadline| channel.receive(deadline))?;
        let (landing, landed) =
            message.region.map_or((0, 0), |region| (region.landing.number(), region.length));
        let host = channel.host().clone();
        let object = message.object.map(|object| Object::new(Opened { host, object }, ""));
        Ok((message.kind, PyBytes::new(py, &message.bytes), landing, landed, object))
    }

    /// Posts a part of an `Object`, or of the object that `Pages` are of.
    fn post(
        &self,
        py: Python<'_>,
        of: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = natural)] offset: u64,
        #[pyo3(from_py_with = natural)] length: u64,
    ) -> PyResult<u64> {
        let channel = self.get(py)?;
        let object = object_of(py, of)?;
        let landing = waiting(py, move || channel.post(&object, offset, length))?;
        Ok(landing.number())
    }

    fn withdraw(&self, py: Python<'_>, #[pyo3(from_py_with = natural)] landing: u64) -> PyResult<()> {
        let channel = self.get(py)?;
        waiting(py, move || channel.withdraw(commonhold::Landing::of_number(landing)))
    }

    fn withdraw_all(&self, py: Python<'_>) -> PyResult<u32> {
        let channel = self.get(py)?;
        waiting(py, move || channel.withdraw_all())
    }

    fn send_region(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = natural)] kind: u32,
        data: &Bound<'_, PyAny>,
        region: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let (channel, bytes) = (self.get(py)?, unchanging(data)?);
        // What is shown stays where it is until the view is given back.
        let view = View::contiguous(region)?;
        let (start, length) = (view.start() as usize, view.nbytes());
        patiently(py, timeout, |deadline| {
            // SAFETY: the view shows that many readable bytes until after the call. Others may
            // write them.
            unsafe { channel.send_region_from(kind, &bytes, (start as *const u8, length), deadline) }
        })
    }

    fn send_object(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = natural)] kind: u32,
        data: &Bound<'_, PyAny>,
        object: &Bound<'_, PyAny>,
        writable: bool,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let (channel, bytes, object) = (self.get(py)?, unchanging(data)?, object_of(py, object)?);
        let access = if writable { Access::ReadWrite } else { Access::Read };
        patiently(py, timeout, |deadline| channel.send_object(kind, &bytes, &object, access, deadline))
    }

    #[allow(clippy::too_many_arguments)] // as Python gives them
    fn send_by_reference(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = natural)] kind: u32,
        data: &Bound<'_, PyAny>,
        of: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = natural)] offset: u64,
        #[pyo3(from_py_with = natural)] length: u64,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let (channel, bytes, object) = (self.get(py)?, unchanging(data)?, object_of(py, of)?);
        let range = (offset, length);
        patiently(py, timeout, |deadline| channel.send_by_reference(kind, &bytes, &object, range, deadline))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner).take();
        crate::interrupts::run(py, || drop(channel))
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if let Some(channel) = self.channel.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            crate::errors::drop_waiting(channel);
        }
    }
}
