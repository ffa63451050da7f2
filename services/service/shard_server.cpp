// SPDX-License-Identifier: Apache-2.0
#include "shard_server.hpp"

#include <verbena/core/net/refusals.hpp>
#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/exception.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/rpcstream/record_reader.hpp>

#include <algorithm>

namespace verbena::services {

namespace {

// Calls to one client over RDMA at once, as knfsd has it.
constexpr std::uint32_t reverse_credits = 2;
// Of a host's bytes, however small the budget.
constexpr std::uint64_t least_share = 4u << 20;
// Of a shard's buffers for files that peers read and write by RDMA, likewise.
constexpr std::size_t least_store_bytes = 1u << 20;

// Receives that stand are memory: those of all listeners leave half of the budget to work with. Half of that is for what each
// connection begins with, and the rest for connections that work.
void bound_receives(rpcrdma::responder_options& o, std::size_t budget, std::size_t shards,
                    std::size_t listeners)
{
    // With one for messages that use no credit.
    const std::size_t one =
        (o.idle_credits + 1) * std::max<std::size_t>(o.inline_size, buffer_pool::min_size);
    const std::uint64_t half = budget / 4 / shards / std::max<std::size_t>(listeners, 1);
    o.max_raised_bytes = half;
    o.max_address_raised_bytes = half / 4;
    o.max_connections =
        static_cast<std::uint32_t>(std::clamp<std::uint64_t>(half / one, 1, o.max_connections));
}

// Of a host's connections, which spread over the shards and the kinds of listeners: together they leave three
// quarters of the budget to others.
std::uint64_t address_share(std::size_t budget, std::size_t shards, std::size_t listeners)
{
    return std::max<std::uint64_t>(budget / 4 / shards / std::max<std::size_t>(listeners, 1), least_share);
}

// Of a peer, over all shards: a quarter of what there may be, but at least what one mount of Linux may ask for (nconnect=16), twice; and
// never all. `most` and `quarter` are those of a shard.
std::size_t peer_connections(const server_options& own, std::size_t most, std::size_t quarter)
{
    constexpr std::size_t least = 2 * 16;
    if (own.peers != nullptr && own.peers->options().connections != 0)
        return own.peers->options().connections;
    const auto of_all = [&](std::size_t n) { return n > SIZE_MAX / own.shards ? SIZE_MAX : n * own.shards; };
    const std::size_t all = std::min(of_all(most), own.most_connections);
    const std::size_t some = std::min(of_all(quarter), own.most_connections / 4);
    return std::max<std::size_t>(std::min(std::max(some, least), all - (all + 3) / 4), 1);
}

// Connections of a kind that a shard may have, of which memory has room for `room`. Who set their number has the last word.
std::size_t connections_of_shard(const server_options& own, std::size_t room)
{
    return own.connections == 0 ? room : (own.connections - 1) / own.shards + 1;
}

rpc::stream_options stream_options(const server_options& own, std::size_t budget, connection_list& all)
{
    rpc::stream_options o;
    o.max_connections = connections_of_shard(own, o.max_connections);
    o.max_address_record_bytes = address_share(budget, own.shards, own.listeners);
    o.max_address_result_bytes = o.max_address_record_bytes;
    // One that has sent a part of a call holds a receive buffer.
    const std::size_t one = rpc::record_reader::options{}.receive_size;
    o.max_peer_connections = peer_connections(own, o.max_connections, budget / 4 / one / own.shards);
    o.max_peer_left_bytes = std::max<std::uint64_t>(budget / 4, least_share);
    o.peers = own.peers;
    o.connections = &all;
    return o;
}

// What a verbs protocol sees of a listener: those whom it admits.
class admitting_listener final : public verbs::listener {
public:
    admitting_listener(verbs::listener& all, verbs::protocol_module& protocol, std::string_view transport,
                       log_limiter& logged) noexcept
        : all_(all), protocol_(protocol), transport_(transport), logged_(logged)
    {
    }
    task<result<std::unique_ptr<verbs::connect_request>>> next() override
    {
        for (;;) {
            auto request = co_await all_.next();
            if (!request || is_admitted(**request))
                co_return request;
            (void)co_await (*request)->reject({});
        }
    }
    // A module that can't tell by an exception admits nobody, and goes on.
    bool is_admitted(const verbs::connect_request& request) noexcept
    {
        try {
            if (protocol_.admits(request.peer_address()))
                return true;
            tell_refusal(refused::connection_address, {.peer = request.peer_address(), .object = transport_});
        } catch (...) {
            const std::string thrown = what_of(std::current_exception());
            log_limited(logged_, log_level::error, "service",
                        "a module that can't tell whom it admits admits nobody",
                        {{"peer", request.peer_name()}, {"exception", thrown}});
        }
        return false;
    }
    void close() noexcept override { all_.close(); }
    std::string local_url() const override { return all_.local_url(); }

private:
    verbs::listener& all_;
    verbs::protocol_module& protocol_;
    const std::string_view transport_; // the provider's
    log_limiter& logged_;
};

task<void> serve_admitted(shard& s, verbs::protocol_module& protocol, verbs::context& device,
                          verbs::listener& all, log_limiter& logged)
{
    admitting_listener admitted(all, protocol, device.query().provider, logged);
    co_await protocol.serve(s, device, admitted);
}

} // namespace

iwarp::options shard_server::iwarp_options(const server_options& own)
{
    iwarp::options o;
    o.crc = own.iwarp_crc ? iwarp::crc_mode::on : iwarp::crc_mode::off;
    o.peers = own.peers;
    o.buffers = &buffers_;
    const std::size_t budget = buffers_.budget().limit();
    o.max_store_bytes = std::max<std::size_t>(budget / 4 / own.shards, least_store_bytes);
    if (own.bounds_connections && own.peers != nullptr && own.peers->options().connections != 0)
        o.max_peer_starting = own.peers->options().connections;
    if (own.route)
        o.divert = [this, route = own.route](std::unique_ptr<verbs::arrival>& peer, verbs::listener& where) {
            const auto at =
                std::ranges::find(iwarp_listeners_, &where, &std::unique_ptr<verbs::listener>::get);
            route(peer, shard_.index(), static_cast<std::size_t>(at - iwarp_listeners_.begin()));
        };
    return o;
}

shard_server::shard_server(shard& s, const server_options& o,
                           const std::vector<rpc::program_module*>& modules,
                           rpc::duplicate_request_cache& duplicates)
    : shard_(s),
      reactor_(s.reactor()),
      buffers_(s.buffers()),
      dispatcher_(s.reactor(), &duplicates),
      streams_(s.reactor(), s.buffers(), dispatcher_,
               stream_options(o, s.buffers().budget().limit(), connections_)),
      iwarp_(o.iwarp->make_context(s.reactor(), iwarp_options(o))),
#ifdef VERBENA_HAS_RDMA
      device_(o.device),
      devices_(o.rdma),
#endif
      unhandled_(o.name),
      rdma_tasks_(s.reactor(), nullptr, &unhandled_, "RDMA listeners")
{
    most_streams_ = std::min<std::size_t>(connections_of_shard(o, rpc::stream_options().max_connections),
                                          std::max<std::size_t>(o.most_connections / o.shards, 1));
    for (rpc::program_module* m : modules)
        add_programs(*m);
    const std::size_t budget = s.buffers().budget().limit();
    bound_receives(rdma_options_, budget, o.shards, o.rdma_listeners);
    rdma_options_.max_connections = static_cast<std::uint32_t>(
        std::min<std::size_t>(connections_of_shard(o, rdma_options_.max_connections), UINT32_MAX));
    rdma_options_.max_peer_connections = static_cast<std::uint32_t>(std::min<std::size_t>(
        peer_connections(o, rdma_options_.max_connections, rdma_options_.max_connections / 4), UINT32_MAX));
    rdma_options_.peers = o.peers;
    rdma_options_.connections = &connections_;
    rdma_options_.max_address_chunk_bytes = address_share(budget, o.shards, o.listeners);
    rdma_options_.read_limit = o.read_limit;
}

std::uint64_t shard_server::rdma_connections() const noexcept
{
    std::uint64_t all = iwarp_->counters().active.load(std::memory_order_relaxed);
#ifdef VERBENA_HAS_RDMA
    if (rdma_)
        all += rdma_->counters().active.load(std::memory_order_relaxed);
#endif
    return all;
}

namespace {

std::string told(const rpc::program& p)
{
    return std::to_string(p.number()) + " (" + std::string(p.name()) + ')';
}

// Why a program can't be served beside the others; empty if it can.
std::string refused(const rpc::program* p, const std::vector<std::unique_ptr<rpc::program>>& others)
{
    if (p == nullptr)
        return "a program that is null: leave it out";
    const std::uint32_t low = p->low_version();
    const std::uint32_t high = p->high_version();
    if (low > high || high - low >= rpc::program_module::max_versions)
        return "the program " + told(*p) + " with versions " + std::to_string(low) + " to " +
               std::to_string(high) + ": they must be 1 to " +
               std::to_string(rpc::program_module::max_versions) + ", from the lowest on";
    for (const auto& other : others) {
        if (other->number() == p->number() && other->low_version() <= high && low <= other->high_version())
            return "the program " + told(*p) + " twice, with version " +
                   std::to_string(std::max(low, other->low_version())) +
                   ": a call could go to either, so leave one of them out";
    }
    return {};
}

} // namespace

void shard_server::add_programs(rpc::program_module& m)
{
    std::vector<std::unique_ptr<rpc::program>> made;
    try {
        made = m.make_programs(shard_);
    } catch (const config_error&) {
        throw;
    } catch (const std::exception& e) {
        throw program_failure(m, e.what());
    } catch (...) {
        throw program_failure(m, "it threw something that is no std::exception");
    }
    if (made.empty())
        throw program_failure(m, "make_programs() gave no program, so that no call could be answered");
    for (auto& program : made) {
        if (const std::string why = refused(program.get(), programs_); !why.empty())
            throw program_failure(m, "make_programs() gave " + why);
        programs_.push_back(std::move(program));
        if (programs_.back()->calls_back())
            rdma_options_.reverse_credits = reverse_credits;
        dispatcher_.add(*programs_.back());
    }
}

shard_server::shard_server(shard& s, const server_options& o, verbs::protocol_module& module,
                           rpc::duplicate_request_cache& duplicates)
    : shard_server(s, o, {}, duplicates)
{
    verbs_protocol_ = &module;
}

result<void> shard_server::serve(verbs::context& device, verbs::listener& listener, of_device& together,
                                 verbs::side_connections* others)
{
    if (verbs_protocol_ != nullptr) { // which has its own domains
        rdma_tasks_.spawn(already_made,
                          serve_admitted(shard_, *verbs_protocol_, device, listener, rejections_logged_));
        return {};
    }
    if (!together.domain) {
        auto made = device.make_domain();
        if (!made)
            return made.error();
        together.domain = std::move(*made);
        together.options = rdma_options_;
        together.options.domain = together.domain.get();
        together.options.others = others;
    }
    rdma_tasks_.spawn(already_made,
                      rpcrdma::serve(device, listener, buffers_, dispatcher_, together.options, rdma_stats_));
    return {};
}

result<std::size_t> shard_server::listen_iwarp(std::string_view url, verbs::side_connections* others)
{
    auto made = iwarp_->listen_adopted(url);
    if (!made)
        return made.error();
    iwarp_listeners_.push_back(std::move(*made));
    if (const auto served = serve(*iwarp_, *iwarp_listeners_.back(), by_iwarp_, others); !served)
        return served.error();
    return iwarp_listeners_.size() - 1;
}

#ifdef VERBENA_HAS_RDMA
result<std::size_t> shard_server::listen_rdma(std::string_view url, blocking_pool& lane,
                                              verbs::side_connections* others)
{
    if (!rdma_) {
        rdma::options o;
        o.device = device_.name;
        o.port = device_.port;
        auto made = devices_->make_context(reactor_, {lane, lane}, o);
        if (!made)
            return made.error();
        rdma_ = std::move(*made);
    }
    auto made = rdma_->listen_adopted(url);
    if (!made)
        return made.error();
    rdma_listeners_.push_back(std::move(*made));
    if (const auto served = serve(*rdma_, *rdma_listeners_.back(), by_rdma_, others); !served)
        return served.error();
    return rdma_listeners_.size() - 1;
}

void shard_server::adopt_rdma(std::unique_ptr<verbs::arrival> peer, std::size_t listener)
{
    rdma_->adopt(std::move(peer), *rdma_listeners_[listener]);
}
#endif

void shard_server::adopt_tcp(net::unique_fd socket, const net::endpoint& peer)
{
    streams_.adopt(std::move(socket), peer);
}

void shard_server::adopt_iwarp(net::unique_fd socket, std::size_t listener)
{
    iwarp_->adopt(socket.release(), *iwarp_listeners_[listener]);
}

void shard_server::adopt_iwarp(std::unique_ptr<verbs::arrival> peer, std::size_t listener)
{
    iwarp_->adopt(std::move(peer), *iwarp_listeners_[listener]);
}

task<void> shard_server::shut_down(time_point deadline)
{
    for (auto* listeners : {&iwarp_listeners_, &rdma_listeners_}) {
        for (auto& listener : *listeners)
            listener->close();
    }
    co_await streams_.shut_down(deadline);
    constexpr auto step = std::chrono::milliseconds(2);
    while (rdma_tasks_.live() != 0 && reactor_.clock().now() < deadline)
        co_await sleep_for(step);
    rdma_tasks_.request_stop();
    co_await rdma_tasks_.join();
}

} // namespace verbena::services
