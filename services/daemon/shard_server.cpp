// SPDX-License-Identifier: Apache-2.0
#include "shard_server.hpp"

#include <verbena/core/sleep.hpp>

namespace verbena::daemon {

shard_server::shard_server(shard& s, const nfs::export_table& exports, const nfs::handle_key& key,
                           nfs::mount3::mount_list& mounts, rpc::duplicate_request_cache& duplicates)
    : reactor_(s.reactor()),
      buffers_(s.buffers()),
      nfs_(exports, key),
      mount_(exports, key, mounts),
      dispatcher_(s.reactor(), &duplicates),
      streams_(s.reactor(), s.buffers(), dispatcher_),
      iwarp_(iwarp::make_context(s.reactor())),
      rdma_tasks_(s.reactor())
{
    dispatcher_.add(nfs_);
    dispatcher_.add(mount_);
}

result<std::size_t> shard_server::listen_iwarp(std::string_view url)
{
    auto made = iwarp_->listen_adopted(url);
    if (!made)
        return made.error();
    iwarp_listeners_.push_back(std::move(*made));
    rdma_tasks_.spawn(
        rpcrdma::serve(*iwarp_, *iwarp_listeners_.back(), buffers_, dispatcher_, rdma_options_, rdma_stats_));
    return iwarp_listeners_.size() - 1;
}

void shard_server::adopt_tcp(net::unique_fd socket, const net::endpoint& peer)
{
    streams_.adopt(std::move(socket), peer);
}

void shard_server::adopt_iwarp(net::unique_fd socket, std::size_t listener)
{
    iwarp_->adopt(socket.release(), *iwarp_listeners_[listener]);
}

task<void> shard_server::shut_down(time_point deadline)
{
    for (auto& listener : iwarp_listeners_)
        listener->close();
    co_await streams_.shut_down(deadline);
    constexpr auto step = std::chrono::milliseconds(2);
    while (rdma_tasks_.live() != 0 && reactor_.clock().now() < deadline)
        co_await sleep_for(step);
    rdma_tasks_.request_stop();
    co_await rdma_tasks_.join();
}

} // namespace verbena::daemon
