// SPDX-License-Identifier: Apache-2.0
// kv_tirpc_server PORT [BUFFER]: the service of examples/kv, made with rpcgen and libtirpc, on 127.0.0.1; the peer of kv_compare.
//
// One thread, which runs svc_run(). What can be spared is: no lock, a hash table, a PUT keeps the memory that libtirpc decoded its
// value into, and a GET is encoded from there. BUFFER is the size of libtirpc's buffers of a connection; 0, which is libtirpc's
// choice, unless it is given.
#include "kv.h"

#include <cstdio>
#include <cstdlib>
#include <netinet/in.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <unordered_map>

extern "C" void kv_1(svc_req* request, SVCXPRT* transport); // what rpcgen made

namespace {

constexpr std::size_t max_keys = 1'000'000;
constexpr std::uint64_t max_bytes = std::uint64_t(256) << 20;

struct hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view s) const noexcept { return std::hash<std::string_view>()(s); }
};
std::unordered_map<std::string, kv_value, hash, std::equal_to<>> values;
std::uint64_t used = 0;

std::string_view text_of(const kv_key& key) { return {key.kv_key_val, key.kv_key_len}; }

[[noreturn]] void fail(const char* what)
{
    std::perror(what);
    std::exit(1);
}

} // namespace

extern "C" kv_get_result* kv_get_1_svc(kv_key* key, svc_req*)
{
    static kv_get_result result;
    const auto at = values.find(text_of(*key));
    result.status = at == values.end() ? KV_NOT_FOUND : KV_OK;
    if (at != values.end())
        result.kv_get_result_u.data = at->second;
    return &result;
}

extern "C" kv_status* kv_put_1_svc(kv_put_args* args, svc_req*)
{
    static kv_status result;
    auto at = values.find(text_of(args->key));
    const bool is_new = at == values.end();
    const std::uint64_t before = is_new ? 0 : args->key.kv_key_len + at->second.kv_value_len;
    const std::uint64_t after = args->key.kv_key_len + args->data.kv_value_len;
    result = used - before + after > max_bytes || (is_new && values.size() == max_keys) ? KV_NO_SPACE : KV_OK;
    if (result != KV_OK)
        return &result;
    used += after - before;
    if (is_new)
        at = values.emplace(text_of(args->key), kv_value{}).first;
    std::swap(at->second, args->data); // the caller frees the old one
    return &result;
}

extern "C" kv_status* kv_delete_1_svc(kv_key* key, svc_req*)
{
    static kv_status result;
    const auto at = values.find(text_of(*key));
    result = at == values.end() ? KV_NOT_FOUND : KV_OK;
    if (at != values.end()) {
        used -= at->first.size() + at->second.kv_value_len;
        std::free(at->second.kv_value_val);
        values.erase(at);
    }
    return &result;
}

extern "C" kv_stat_result* kv_stat_1_svc(void*, svc_req*)
{
    static kv_stat_result result;
    result = {values.size(), used, max_keys, max_bytes};
    return &result;
}

int main(int argc, char** argv)
{
    if (argc < 2) {
        std::fprintf(stderr, "usage: kv_tirpc_server PORT [BUFFER]\n");
        return 2;
    }
    const unsigned buffer = argc > 2 ? unsigned(std::atoi(argv[2])) : 0;
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    const int one = 1;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    sockaddr_in here{};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    here.sin_port = htons(static_cast<in_port_t>(std::atoi(argv[1])));
    if (::bind(fd, reinterpret_cast<const sockaddr*>(&here), sizeof here) != 0 || ::listen(fd, 1024) != 0)
        fail("kv_tirpc_server: listen");
    SVCXPRT* transport = svc_vc_create(fd, buffer, buffer);
    if (transport == nullptr || !svc_reg(transport, KV, KV_1, kv_1, nullptr)) // nullptr: rpcbind is not told
        fail("kv_tirpc_server: svc_reg");
    svc_run();
    return 1;
}
