//! Whatever callers call a stream, as the number that the library takes.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyTuple};

use crate::connect::Package;

/// The CUstream, and what has to be kept so that it lives.
pub type Resolved = (u64, Option<Py<PyAny>>);

/// As the package's `resolve`, which has the last word: what is not plainly a stream here is asked there, and refused there.
/// Nothing is remembered of a stream, since what it stands for can change.
pub fn resolve(package: &Package, stream: &Bound<'_, PyAny>) -> PyResult<Resolved> {
    let py = stream.py();
    if stream.get_type().is(&package.stream) {
        let created = stream.getattr(intern!(py, "_created"))?;
        if !created.is_none() {
            let handle = created.getattr(intern!(py, "handle"))?.extract()?;
            return Ok((handle, Some(created.unbind())));
        }
    } else if stream.is_exact_instance_of::<PyInt>() {
        if let Ok(handle) = stream.extract() {
            return Ok((handle, None));
        }
    } else if let Some(handle) = by_protocol(stream)? {
        return Ok((handle, Some(stream.clone().unbind())));
    }
    package.resolve.bind(py).call1((stream,))?.extract()
}

/// The handle that `__cuda_stream__()` gives, if it is what the protocol asks for.
fn by_protocol(stream: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    let Some(protocol) = stream.getattr_opt(intern!(stream.py(), "__cuda_stream__"))? else { return Ok(None) };
    if !protocol.is_callable() {
        return Ok(None);
    }
    let answer = protocol.call0()?;
    let Ok(answer) = answer.cast_exact::<PyTuple>() else { return Ok(None) };
    if answer.len() != 2 {
        return Ok(None);
    }
    let (version, handle) = (answer.get_borrowed_item(0)?, answer.get_borrowed_item(1)?);
    let plain = version.is_exact_instance_of::<PyInt>() && handle.is_exact_instance_of::<PyInt>();
    Ok(if plain && version.extract::<u64>().is_ok_and(|version| version == 0) { handle.extract().ok() } else { None })
}
