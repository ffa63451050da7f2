// SPDX-License-Identifier: Apache-2.0
// kv_tirpc_load PORT get|put SIZE CALLS SECONDS: loads a server of examples/kv's program on 127.0.0.1 as a user of rpcgen and
// libtirpc would, whose calls are synchronous: CALLS threads, each with a connection of its own. Prints "begin" when it counts, and
// one line of JSON.
#include "kv.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <thread>
#include <vector>

namespace {

constexpr auto warm_up = std::chrono::milliseconds(300);
constexpr timeval patience{10, 0};

[[noreturn]] void fail(const std::string& why)
{
    std::fprintf(stderr, "kv_tirpc_load: %s\n", why.c_str());
    std::exit(1);
}

struct load {
    sockaddr_in where{};
    bool put = false;
    std::vector<char> value;
    unsigned keys = 0;
    std::atomic<bool> counting{false}, stop{false};
};

CLIENT* connect(load& l)
{
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    const int one = 1;
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&l.where), sizeof l.where) != 0)
        fail("cannot connect");
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    netbuf address{sizeof l.where, sizeof l.where, &l.where};
    CLIENT* client = clnt_vc_create(fd, &address, KV, KV_1, 0, 0);
    if (client == nullptr)
        fail(clnt_spcreateerror("clnt_vc_create"));
    return client;
}

void check(clnt_stat stat, kv_status status)
{
    if (stat != RPC_SUCCESS)
        fail(clnt_sperrno(stat));
    if (status != KV_OK)
        fail("the server refused a call: status " + std::to_string(status));
}

void one_call(load& l, CLIENT* client, std::string& key, bool put)
{
    kv_key name{u_int(key.size()), key.data()};
    if (put) {
        kv_put_args args{name, {u_int(l.value.size()), l.value.data()}};
        kv_status status = KV_OK;
        const clnt_stat stat = clnt_call(client, KV_PUT, reinterpret_cast<xdrproc_t>(xdr_kv_put_args), &args,
                                         reinterpret_cast<xdrproc_t>(xdr_kv_status), &status, patience);
        check(stat, status);
    } else {
        kv_get_result result{};
        const clnt_stat stat = clnt_call(client, KV_GET, reinterpret_cast<xdrproc_t>(xdr_kv_key), &name,
                                         reinterpret_cast<xdrproc_t>(xdr_kv_get_result), &result, patience);
        check(stat, result.status);
        if (result.kv_get_result_u.data.kv_value_len != l.value.size())
            fail("a value of another length");
        clnt_freeres(client, reinterpret_cast<xdrproc_t>(xdr_kv_get_result), &result);
    }
}

std::string key_of(unsigned i) { return "key-" + std::to_string(1'000'000 + i); }

} // namespace

int main(int argc, char** argv)
{
    const std::string_view operation = argc == 6 ? argv[2] : "";
    if (operation != "get" && operation != "put") {
        std::fprintf(stderr, "usage: kv_tirpc_load PORT get|put SIZE CALLS SECONDS\n");
        return 2;
    }
    load l;
    l.where.sin_family = AF_INET;
    l.where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    l.where.sin_port = htons(static_cast<in_port_t>(std::atoi(argv[1])));
    l.put = operation == "put";
    l.value.resize(std::size_t(std::atoll(argv[3])), 'v');
    l.keys = l.value.size() >= 65536 ? 64 : 1024;
    {
        CLIENT* client = connect(l);
        for (unsigned i = 0; i < l.keys; ++i) {
            std::string key = key_of(i);
            one_call(l, client, key, true);
        }
        clnt_destroy(client);
    }
    const std::size_t count = std::size_t(std::atoi(argv[4]));
    std::vector<std::uint64_t> done(count * 8); // a cache line each
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < count; ++t)
        threads.emplace_back([&, t] {
            CLIENT* client = connect(l);
            std::string key;
            std::uint64_t n = 0;
            for (unsigned i = unsigned(t); !l.stop.load(std::memory_order_relaxed); i += 7) {
                key = key_of(i % l.keys);
                one_call(l, client, key, l.put);
                n += l.counting.load(std::memory_order_relaxed) ? 1 : 0;
            }
            done[t * 8] = n;
            clnt_destroy(client);
        });
    std::this_thread::sleep_for(warm_up);
    const auto begun = std::chrono::steady_clock::now();
    l.counting = true;
    std::printf("begin\n");
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::duration<double>(std::atof(argv[5])));
    l.counting = false;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    l.stop = true;
    std::uint64_t operations = 0;
    for (std::size_t t = 0; t < count; ++t) {
        threads[t].join();
        operations += done[t * 8];
    }
    std::printf(
        "{\"operation\": \"%s\", \"size\": %zu, \"calls\": %zu, \"seconds\": %.3f, \"operations\": %llu, "
        "\"per_second\": %.0f}\n",
        argv[2], l.value.size(), count, seconds, static_cast<unsigned long long>(operations),
        double(operations) / seconds);
    return operations == 0;
}
