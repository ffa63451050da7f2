// SPDX-License-Identifier: Apache-2.0
// A session with an RNBD server, and a device of it that is open: what `verbena block` and the plugin of nbdkit have in common.
#pragma once

#include "failure.hpp"

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/core/verbs/verbs.hpp>
#include <verbena/protocols/rnbd/client.hpp>
#include <verbena/protocols/rtrs/client.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::cli {

/// Where a device is, and how it is reached.
struct block_place {
    std::string url; ///< rnbd+iwarp://HOST[:1234]/DEVICE, rnbd+rdma://...; the device may be percent-encoded
    std::vector<std::string>
        paths;                ///< more ways to the same server; their devices, if any, are not looked at
    std::string session;      ///< empty: host and process
    unsigned connections = 1; ///< of each path, beside that for service messages
    std::optional<duration> patience; ///< how long a request waits while no path is connected
    std::string to_read; ///< what opens a device that may not be written, for people; empty: nothing to tell
};
/// Whether that is the URL of a device and not of a file.
bool is_device_url(std::string_view text) noexcept;
/// What is wrong with its URLs, for people; empty if nothing.
std::string check(const block_place& p);

/// Shard-local. close() before it goes.
class block_session {
public:
    /// The provider for "iwarp" or "rdma"; it outlives the session.
    using providers = std::function<result<verbs::context*>(std::string_view scheme)>;
    block_session(reactor& shard, buffer_pool& buffers, providers find)
        : shard_(shard), buffers_(buffers), find_(std::move(find))
    {
    }
    /// Connects all paths. Once. Fails if none can be connected; one that can't is tried again for as long as the session lives, and
    /// stands in unreached(). Asks the resolver for names on the shard.
    task<failure> connect(const block_place& p);
    /// What connect() could not connect.
    const std::vector<failure>& unreached() const noexcept { return unreached_; }
    /// Opens the device of the URL.
    task<failure> open(rnbd::access_mode mode);
    /// Opens it once more if that failed when the session began anew. Nobody who had it open before goes on with it.
    task<failure> begin_anew();
    /// Gives the device back. Takes some seconds at most, whatever the server does.
    task<void> close();

    /// nullptr before it is open.
    rnbd::device* device() const noexcept { return device_.get(); }
    rtrs::client* session() const noexcept { return session_.get(); }

private:
    task<result<void>> add_path(verbs::context& provider, const std::string& address);
    task<void> close_device(event& over);

    reactor& shard_;
    buffer_pool& buffers_;
    providers find_;
    std::vector<failure> unreached_;
    std::string url_;
    std::string to_read_;
    std::string device_name_;
    rtrs::client_stats stats_;
    std::unique_ptr<rtrs::client> session_;
    std::unique_ptr<rnbd::client> blocks_;
    std::unique_ptr<rnbd::device> device_;
};

} // namespace verbena::cli
