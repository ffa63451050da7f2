// SPDX-License-Identifier: Apache-2.0
// Calls the program kv, over TCP or as RPC-over-RDMA:
//
//   kv get URL KEY         writes the value to the standard output
//   kv put URL KEY         reads it from the standard input
//   kv del URL KEY
//   kv stat URL            URL: tcp://HOST:PORT or iwarp://HOST:PORT
//
// Exit status: 0 done, 1 not done, 2 wrong usage.
#include "protocol.hpp"

#include <verbena/core/net.hpp>
#include <verbena/core/scope.hpp>
#include <verbena/protocols/rpc/stream_client.hpp>
#include <verbena/protocols/rpcrdma/requester.hpp>
#include <verbena/transports/iwarp.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

using namespace verbena;

namespace {

class usage_error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

struct command {
    kv::procedure what = kv::procedure::null;
    std::string url;
    std::string key;
    std::vector<std::byte> value; // of a PUT
};

template<class T>
T or_throw(result<T> r, const std::string& what)
{
    if (!r)
        throw std::runtime_error(what + ": " + r.error().message());
    return std::move(*r);
}

// Both kinds are the same to whoever calls. `rdma` makes the connections of iwarp://.
std::unique_ptr<rpc::client_transport> make_client(reactor& shard, buffer_pool& buffers, verbs::context& rdma,
                                                   const std::string& url)
{
    rpc::client_options patience;
    patience.hard = false; // a call fails when the server stays silent
    patience.timeout = std::chrono::seconds(10);
    const auto colon = url.find("://");
    const std::string scheme = url.substr(0, colon);
    if (colon == std::string::npos || (scheme != "tcp" && scheme != "iwarp"))
        throw usage_error(url + ": write tcp://HOST:PORT or iwarp://HOST:PORT");
    const std::string address = or_throw(net::resolve(url.substr(colon + 3)), url).front().to_string();
    if (scheme == "tcp") {
        rpc::stream_client_options options;
        options.client = patience;
        return or_throw(rpc::make_stream_client(shard, buffers, address, options), url);
    }
    rpcrdma::requester_options options;
    options.client = patience;
    return rpcrdma::make_requester(rdma, buffers, address, options);
}

// The value goes as a payload item: as a Read chunk where it is large and there is RDMA.
task<result<rpc::reply>> call(rpc::client_transport& server, const command& c)
{
    rpc::call_header header;
    header.program = kv::program_number;
    header.version = kv::version;
    header.procedure = std::uint32_t(c.what);
    lease block = co_await server.acquire(rpc::max_call_header_size + 2 * kv::max_key);
    rpc::request request(std::move(block), header);
    if (c.what != kv::procedure::stat)
        request.message().string(c.key);
    if (c.what == kv::procedure::put) {
        lease memory = co_await server.acquire(std::max<std::size_t>(c.value.size(), 1));
        std::copy(c.value.begin(), c.value.end(), memory.data());
        const std::span<const std::byte> bytes = memory.bytes().first(c.value.size());
        request.message().note_payload(std::uint32_t(bytes.size()));
        request.attach(rpc::payload(std::move(memory), bytes));
    }
    // Room for a value, which the server fills by RDMA Writes.
    request.max_result = c.what == kv::procedure::get ? kv::max_value : 0;
    co_return co_await server.call(request);
}

const char* text_of(kv::status s)
{
    switch (s) {
    case kv::status::ok: return "done";
    case kv::status::not_found: return "no such key";
    case kv::status::no_space: return "no space: the server has all that max_keys or max_bytes allow";
    case kv::status::busy: return "the server has no memory at the moment: try again";
    }
    return "an unknown status";
}

std::string stat_text(xdr::decoder& in)
{
    std::string text;
    for (const char* name : {"keys ", "bytes ", "max_keys ", "max_bytes "})
        text += name + std::to_string(in.u64()) + '\n';
    return text;
}

// Writes what was asked for. False, and says why, if the server did not do it; throws for a reply that makes no sense.
bool print(const command& c, rpc::reply& reply)
{
    xdr::decoder& in = reply.results();
    std::string text;
    const kv::status status = c.what == kv::procedure::stat ? kv::status::ok : kv::status(in.u32());
    if (c.what == kv::procedure::stat) {
        text = stat_text(in);
    } else if (c.what == kv::procedure::get && status == kv::status::ok) {
        const xdr::payload_ref ref = in.payload(kv::max_value);
        const rpc::payload value = or_throw(reply.take(ref), "GET");
        for (const auto piece : value.pieces())
            text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
    if (!in.at_end())
        throw std::runtime_error("a garbled reply");
    if (status != kv::status::ok)
        std::fprintf(stderr, "kv: %s: %s\n", c.key.c_str(), text_of(status));
    std::fwrite(text.data(), 1, text.size(), stdout);
    return status == kv::status::ok && std::fflush(stdout) == 0;
}

task<bool> run(rpc::client_transport& server, const command& c)
{
    auto reply = co_await call(server, c);
    co_await server.close();
    if (!reply)
        throw std::runtime_error(c.url + ": " + reply.error().message());
    co_return print(c, *reply);
}

command parse(const std::vector<std::string>& words)
{
    command c;
    if (words.size() == 3 && words[0] == "get")
        c.what = kv::procedure::get;
    else if (words.size() == 3 && words[0] == "put")
        c.what = kv::procedure::put;
    else if (words.size() == 3 && words[0] == "del")
        c.what = kv::procedure::del;
    else if (words.size() == 2 && words[0] == "stat")
        c.what = kv::procedure::stat;
    else
        throw usage_error("write get URL KEY, put URL KEY, del URL KEY or stat URL");
    c.url = words[1];
    c.key = words.size() == 3 ? words[2] : "";
    if (c.key.size() > kv::max_key)
        throw usage_error("a key has at most 256 bytes");
    if (c.what != kv::procedure::put)
        return c;
    c.value.resize(kv::max_value + 1);
    c.value.resize(std::fread(c.value.data(), 1, c.value.size(), stdin));
    if (c.value.size() > kv::max_value)
        throw usage_error("a value has at most 1 MiB");
    return c;
}

} // namespace

int main(int argc, char** argv)
{
    try {
        const command c = parse({argv + 1, argv + argc});
        auto shard = or_throw(reactor::create(), "reactor");
        memory_budget budget(std::size_t(16) << 20); // bytes, of all buffers together
        buffer_pool buffers(budget, shard.get());
        const auto rdma = iwarp::make_context(*shard);
        const auto server = make_client(*shard, buffers, *rdma, c.url);
        return run_until_complete(*shard, run(*server, c)) ? 0 : 1;
    } catch (const usage_error& e) {
        std::fprintf(stderr, "kv: %s\n", e.what());
        return 2;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "kv: %s\n", e.what());
        return 1;
    }
}
