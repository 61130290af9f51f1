//! Memory of Python's objects, by the buffer protocol.

use pyo3::PyResult;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;

fn check_contiguous(buffer: &PyUntypedBuffer) -> PyResult<()> {
    match buffer.is_c_contiguous() {
        true => Ok(()),
        false => Err(PyBufferError::new_err("the memory has gaps or another order: make it contiguous")),
    }
}

/// The bytes of a buffer.
pub fn bytes(buffer: &PyUntypedBuffer) -> PyResult<&[u8]> {
    check_contiguous(buffer)?;
    if buffer.len_bytes() == 0 {
        return Ok(&[]);
    }
    // SAFETY: the memory is contiguous, and stays as long as the buffer is not released. The package's documentation forbids other
    // threads to change it during a call. One that does has the call fail by its checksums.
    Ok(unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.len_bytes()) })
}

/// The bytes of a buffer, to be filled.
pub fn bytes_mut(buffer: &mut PyUntypedBuffer) -> PyResult<&mut [u8]> {
    check_contiguous(buffer)?;
    if buffer.readonly() {
        return Err(PyBufferError::new_err("the memory is read-only"));
    }
    if buffer.len_bytes() == 0 {
        return Ok(&mut []);
    }
    // SAFETY: the memory is contiguous and writable, and stays as long as the buffer is not released. The package's documentation
    // forbids other threads to use it during a call.
    Ok(unsafe { std::slice::from_raw_parts_mut(buffer.buf_ptr().cast(), buffer.len_bytes()) })
}
