// SPDX-License-Identifier: Apache-2.0
// Results that are kept to answer repeats of their call, with the data that were attached.
#pragma once

#include <verbena/core/task/task.hpp>
#include <verbena/protocols/rpc/call.hpp>
#include <verbena/protocols/xdr/encoder.hpp>

#include <cstddef>
#include <span>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::rpc {

/// The results of a call in one piece. A repeat has chunks of its own for the data in them (RFC 8166 4.3.2), so their places are kept too.
class kept_results {
public:
    /// Copies the results of `c` from the offset `start` on. Nothing that is attached is a range of a file.
    kept_results(call& c, std::size_t start);

    /// The results, as they are to be sent again. Valid as long as this.
    std::span<const std::byte> bytes() const noexcept { return std::span(whole_).subspan(start_); }
    /// Where data lie in bytes(), each by its `position`.
    std::span<const xdr::payload_item> items() const noexcept { return items_; }

private:
    std::size_t start_;
    std::vector<std::byte> whole_;
    std::vector<xdr::payload_item> items_;
};

/// Writes behind the results of `c` what kept_results had, and attaches copies of its data.
/// Completes when: there is memory, or buffer_pool::call_patience is over. On cancel: it ends, false. Errors: false: there is no memory for the
/// data, and results are to be cut back. Lifetime: all outlive the task. Shard: that of `c`.
task<bool> answer_as_kept(call& c, std::span<const std::byte> bytes,
                          std::span<const xdr::payload_item> items);

} // namespace verbena::rpc

#pragma GCC visibility pop
