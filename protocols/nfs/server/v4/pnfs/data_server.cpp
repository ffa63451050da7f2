// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/server/v4/pnfs/data_server.hpp>

#include <verbena/core/log.hpp>
#include <verbena/core/net/refusals.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>
#include <vector>

namespace verbena::nfs::v4::pnfs {

namespace {

constexpr std::size_t number_size = 4;
constexpr std::size_t signature_size = 12;
static_assert(number_size + signature_size == std::tuple_size_v<deviceid4>);

const char* cause_of(rdma_layout_reject why) noexcept
{
    switch (why) {
    case rdma_layout_reject::other_version: return "the client speaks another version of the connect request";
    case rdma_layout_reject::unknown:
        return "the client shows a device id that is not its own, or of an earlier start";
    case rdma_layout_reject::too_many: return "the client has as many connections as one may";
    case rdma_layout_reject::no_room: return "as many connections are there as may be";
    case rdma_layout_reject::none: break;
    }
    return "";
}

// The address in a universal one, which ends in two numbers for the port (RFC 5665 5.2.3.3). Nothing: it has none.
std::string_view host_of(std::string_view universal) noexcept
{
    for (int i = 0; i < 2; ++i)
        universal = universal.substr(0, std::min(universal.rfind('.'), universal.size()));
    return universal.find_first_of(".:") != std::string_view::npos ? universal : std::string_view();
}

} // namespace

/// A client's connection, on its shard. Nobody sends messages over it.
class data_server::connection final : public list_hook, public verbs::completion_handler {
public:
    connection(data_server& of, part& here, std::shared_ptr<layout_client> c) noexcept
        : of_(of), here_(here), client(std::move(c))
    {
        here_.connections.push_back(*this);
        here_.count.add(1);
        ++client->connections;
    }
    connection(const connection&) = delete;
    ~connection()
    {
        queue_pair.reset();
        here_.count.add(-1);
        --client->connections;
        of_.leave(client->id);
    }
    void on_completions(std::span<const verbs::completion>) noexcept override {}
    void on_disconnected(const error&) noexcept override { ended.set(); }
    /// The client is gone. While the connection is being made, serve() looks when that is over.
    void end() noexcept
    {
        is_to_end = true;
        if (is_made)
            abort("the client is gone");
    }
    /// Its end is told when its last access to a store is over.
    void abort(const char* why) noexcept
    {
        if (queue_pair->connected())
            queue_pair->abort(error(std::errc::connection_aborted, why));
    }

private:
    data_server& of_;
    part& here_;

public:
    const std::shared_ptr<layout_client> client; // its domain outlives the queue pair
    std::unique_ptr<verbs::queue_pair> queue_pair;
    bool is_made = false;
    bool is_to_end = false;
    event ended; // the queue pair has told so
};

data_server::data_server(verbs::device& device, std::span<shard* const> shards, const siphash_key& key,
                         std::uint64_t epoch, const data_server_limits& limits)
    : device_(device), key_(key), epoch_(epoch), limits_(limits)
{
    for (shard* const each : shards)
        parts_.emplace_back(*each);
}

data_server::~data_server() = default;

data_server::part* data_server::part_here(const reactor& r) noexcept
{
    const auto found = std::ranges::find_if(parts_, [&r](const part& p) { return &p.where.reactor() == &r; });
    return found == parts_.end() ? nullptr : &*found;
}

std::shared_ptr<layout_client> data_server::known(files::client_id id)
{
    const std::lock_guard lock(mutex_);
    const auto found = clients_.find(id);
    if (found == clients_.end() || found->second.client == nullptr)
        return nullptr;
    found->second.is_idle = false;
    return found->second.client;
}

result<std::shared_ptr<layout_client>> data_server::client(files::client_id id, clientid4 wire,
                                                           std::string_view where)
{
    if (auto one = known(id))
        return one;
    auto domain = device_.make_domain(host_of(where)); // may ask the kernel
    if (!domain) {
        log_limited(refusals_logged_, log_level::warning, "pnfs", "no layouts for a client",
                    {{"where", where}, {"cause", domain.error().message()}});
        return domain.error();
    }
    const std::lock_guard lock(mutex_);
    if (clients_.size() >= limits_.clients && !clients_.contains(id))
        return error::from_errno(ENOBUFS, "as many clients have layouts as may");
    known_client& k = clients_[id];
    k.is_idle = false;
    if (k.client == nullptr) {
        auto made = std::make_shared<layout_client>(id, std::move(*domain), ++last_number_, wire,
                                                    std::string(where), device_.query().needs_local_keys);
        wires_[made->wire] = id;
        k.client = std::move(made);
    }
    return k.client;
}

deviceid4 data_server::device_of(const layout_client& c) const noexcept
{
    std::array<std::byte, 24> text{};
    xdr::store_u64(text.data(), epoch_);
    xdr::store_u64(text.data() + 8, c.id);
    xdr::store_u32(text.data() + 16, c.number);
    std::array<std::byte, 16> signature{};
    for (const std::uint32_t half : {0u, 1u}) {
        xdr::store_u32(text.data() + 20, half);
        xdr::store_u64(signature.data() + 8 * half, siphash(key_, text));
    }
    deviceid4 out{};
    xdr::store_u32(out.data(), c.number);
    std::copy_n(signature.begin(), signature_size, out.begin() + number_size);
    return out;
}

std::shared_ptr<layout_client> data_server::find(clientid4 wire, const deviceid4& device) const
{
    std::shared_ptr<layout_client> c;
    {
        const std::lock_guard lock(mutex_);
        if (const auto named = wires_.find(wire); named != wires_.end())
            c = clients_.find(named->second)->second.client;
    }
    if (c == nullptr)
        return nullptr;
    // A difference of the whole tells a forger nothing about how much of it was right.
    const deviceid4 own = device_of(*c);
    std::byte differs{};
    for (std::size_t i = 0; i < own.size(); ++i)
        differs |= own[i] ^ device[i];
    return differs == std::byte() ? c : nullptr;
}

// With the mutex held. Its connections still count, until they have ended: what this yields has some.
std::shared_ptr<layout_client> data_server::drop(known_clients::iterator of) noexcept
{
    known_client& k = of->second;
    if (k.client != nullptr)
        if (const auto named = wires_.find(k.client->wire);
            named != wires_.end() && named->second == of->first)
            wires_.erase(named); // else a later one has that name
    std::shared_ptr<layout_client> gone = std::move(k.client);
    k.client.reset();
    if (k.connections == 0) {
        clients_.erase(of);
        gone.reset();
    }
    return gone;
}

task<void> data_server::forget(files::client_id id)
{
    std::shared_ptr<layout_client> gone;
    {
        const std::lock_guard lock(mutex_);
        const auto found = clients_.find(id);
        if (found == clients_.end())
            co_return;
        gone = drop(found);
    }
    if (gone == nullptr)
        co_return;
    task<void> ending = end_connections(gone.get());
    co_await ending;
}

// A client that lays one file aside and takes up the next is to find its connections, so it is not forgotten with its last layout.
task<void> data_server::forget_idle()
{
    std::vector<files::client_id> idle;
    std::vector<std::shared_ptr<layout_client>> gone;
    {
        const std::lock_guard lock(mutex_);
        for (auto& [id, k] : clients_) {
            // Each layout has it, and each connection.
            const bool is_idle =
                k.client != nullptr && std::size_t(k.client.use_count()) <= 1 + k.client->connections;
            if (is_idle && k.is_idle)
                idle.push_back(id);
            k.is_idle = is_idle;
        }
        gone.reserve(idle.size());
        for (const files::client_id id : idle)
            if (auto one = drop(clients_.find(id)))
                gone.push_back(std::move(one));
    }
    for (const auto& each : gone) {
        task<void> ending = end_connections(each.get());
        co_await ending;
    }
}

// A client that comes back meanwhile has the same id, and is another one.
task<void> data_server::end_connections(const layout_client* of)
{
    for (part& each : parts_) {
        const auto end = [&each, of]() -> result<void> {
            for (list_hook* at = each.connections.front(); at != nullptr; at = each.connections.next(*at))
                if (auto& c = static_cast<connection&>(*at); c.client.get() == of)
                    c.end();
            return {};
        };
        auto ending = each.where.run(end);
        (void)co_await ending;
    }
}

rdma_layout_reject data_server::admit(const rdma_layout_connect& asked,
                                      std::shared_ptr<layout_client>& client)
{
    client = find(asked.client, asked.device);
    if (client == nullptr)
        return rdma_layout_reject::unknown;
    const std::lock_guard lock(mutex_);
    const auto found = clients_.find(client->id);
    if (found == clients_.end() || found->second.client != client)
        return rdma_layout_reject::unknown;
    if (found->second.connections >= limits_.connections_of_client)
        return rdma_layout_reject::too_many;
    if (connections_ >= limits_.connections)
        return rdma_layout_reject::no_room;
    ++found->second.connections;
    ++connections_;
    return rdma_layout_reject::none;
}

void data_server::leave(files::client_id id) noexcept
{
    const std::lock_guard lock(mutex_);
    --connections_;
    const auto found = clients_.find(id);
    if (--found->second.connections == 0 && found->second.client == nullptr)
        clients_.erase(found);
}

bool data_server::is_meant(std::span<const std::byte> private_data) noexcept
{
    const auto asked = decode_rdma_layout_connect(private_data);
    return asked || asked.error() == std::errc::protocol_not_supported;
}

task<void> data_server::reject(verbs::connect_request& request, rdma_layout_reject why)
{
    const auto answer = encode(rdma_layout_answer{1, static_cast<std::uint8_t>(why)});
    auto rejecting = request.reject(answer);
    (void)co_await rejecting;
}

task<void> data_server::serve(std::unique_ptr<verbs::connect_request> request)
{
    const task_context& context = co_await current_context();
    part* const here = part_here(*context.shard);
    if (here == nullptr)
        co_return; // which refuses it
    const auto asked = decode_rdma_layout_connect(request->private_data());
    std::shared_ptr<layout_client> client;
    const rdma_layout_reject refusing = asked ? admit(*asked, client) : rdma_layout_reject::other_version;
    if (refusing != rdma_layout_reject::none) {
        here->rejected.add();
        const bool is_share =
            refusing == rdma_layout_reject::too_many || refusing == rdma_layout_reject::no_room;
        tell_refusal(
            is_share ? refused::layout_share : refused::layout_client,
            {.peer = request->peer_address(), .object = "data connection", .said = cause_of(refusing)});
        task<void> rejecting = reject(*request, refusing);
        co_await rejecting;
        co_return;
    }
    connection c(*this, *here, std::move(client)); // so that there is one for each
    verbs::queue_pair_options options;
    options.send_depth = options.receive_depth = 4;
    auto making = request->make_queue_pair(*c.client->domain, options);
    auto made = co_await making;
    if (!made) {
        log_limited(here->failures_logged, log_level::warning, "pnfs", "no queue pair for a connection",
                    {{"peer", request->peer_name()}, {"cause", made.error().message()}});
        co_return; // which refuses it
    }
    c.queue_pair = std::move(*made);
    c.queue_pair->set_handler(&c);
    const auto answer = encode(rdma_layout_answer{1, 0});
    verbs::connect_options accepting;
    accepting.private_data = answer;
    accepting.initiator_depth = 0;
    accepting.responder_resources = limits_.reads;
    accepting.queue_pair = options;
    auto answering = request->accept(accepting);
    const auto accepted = co_await answering;
    request.reset();
    if (!accepted)
        co_return;
    c.is_made = true;
    bool goes_on = true;
    if (!c.is_to_end) {
        here->accepted.add();
        goes_on = co_await c.ended.wait();
    }
    c.abort(goes_on ? "the client is gone" : "the data server ends");
    // Also where it has ended by itself: an access of its peer may be under way still, and it counts until that is over.
    co_await c.ended.wait_shielded();
}

task<void> data_server::end()
{
    if (revoke_all) {
        task<void> revoking = revoke_all();
        co_await revoking;
    }
    // Their domains go without the mutex. A connection that is there all the same keeps its own, and counts until it ends.
    std::vector<std::shared_ptr<layout_client>> gone;
    const std::lock_guard lock(mutex_);
    gone.reserve(clients_.size());
    for (auto at = clients_.begin(); at != clients_.end();) {
        gone.push_back(std::move(at->second.client));
        at = at->second.connections == 0 ? clients_.erase(at) : std::next(at);
    }
    wires_.clear();
}

data_server::counts data_server::count() const noexcept
{
    counts all;
    {
        const std::lock_guard lock(mutex_);
        all.clients = static_cast<std::size_t>(
            std::ranges::count_if(clients_, [](const auto& k) { return k.second.client != nullptr; }));
    }
    for (const part& each : parts_) {
        all.connections += each.count.value();
        all.accepted += each.accepted.value();
        all.rejected += each.rejected.value();
    }
    return all;
}

} // namespace verbena::nfs::v4::pnfs
