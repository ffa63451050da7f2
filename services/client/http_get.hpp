// SPDX-License-Identifier: Apache-2.0
// One GET of a daemon's metrics port.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

namespace verbena::cli {

struct http_reply {
    std::string failed; ///< why there is no whole answer; empty: there is
    int status = 0;
    std::string body;    ///< also what came of it, if that is not all
    bool is_cut = false; ///< it was more than may be
};
/// `url`: "http://127.0.0.1:9464/metrics", with an address in digits and a port. Takes `most` bytes, and `patience` at most.
/// `stops` is asked, each 50 ms and after each signal, whether to give it up; then `failed` is "it was stopped". An answer that is
/// shorter than its Content-Length is a failure.
http_reply http_get(const std::string& url, std::size_t most, std::chrono::milliseconds patience,
                    const std::function<bool()>& stops = {});

} // namespace verbena::cli
