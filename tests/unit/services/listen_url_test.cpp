// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <service/listen_url.hpp>

#include <verbena/core/module/settings.hpp>

#include <string>

BOOST_AUTO_TEST_SUITE(listen_url_test)

using namespace verbena;
using namespace verbena::services;

namespace {

class nfs_like final : public protocol_module {
public:
    std::vector<std::string> default_listeners() const override { return {}; }
    std::uint16_t default_port(std::string_view transport) const override
    {
        return transport == "tcp" ? 2049 : 20049;
    }
};
class without_ports final : public protocol_module {
public:
    std::vector<std::string> default_listeners() const override { return {}; }
};
const nfs_like protocol;

listen_url parse(std::string_view text) { return parse_listen_url(text, protocol); }

std::string said(std::string_view text)
{
    try {
        (void)parse(text);
    } catch (const config_error& e) {
        return e.what();
    }
    return {};
}

} // namespace

BOOST_AUTO_TEST_CASE(listen_urls_have_a_known_scheme_a_host_and_a_port)
{
    BOOST_TEST((parse("tcp://127.0.0.1:7") == listen_url{"tcp", "127.0.0.1", 7}));
    BOOST_TEST(parse("tcp://localhost").port == 2049U);
    BOOST_TEST(parse("iwarp://localhost").port == 20049U);
    BOOST_TEST(parse("iwarp://[::1]:0").port == 0U);
    BOOST_TEST(parse("iwarp://[2001:db8::1]:20049/").text() == "iwarp://[2001:db8::1]:20049");
    for (const char* bad : {"127.0.0.1:2049", "tcp:/127.0.0.1", "tpc://127.0.0.1:1", "tcp://", "tcp://:7",
                            "tcp://h:65536", "tcp://h:x", "tcp://h:1:2", "tcp://[::1", "tcp://h:-1"})
        BOOST_CHECK_THROW((void)parse(bad), config_error);
    BOOST_TEST(said("tcp://127.0.0.1/data").find("nothing may follow") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_protocol_without_a_port_of_its_own_has_it_written)
{
    BOOST_CHECK_THROW((void)parse_listen_url("tcp://localhost", without_ports()), config_error);
    BOOST_TEST(parse_listen_url("tcp://localhost:0", without_ports()).port == 0U);
    BOOST_TEST(parse_listen_url("tcp://localhost:7", without_ports()).port == 7U);
}

BOOST_AUTO_TEST_CASE(a_listener_by_rdma_may_name_its_device)
{
    const listen_url url = parse("rdma://192.0.2.1:20049?device=mlx5_0:2");
    BOOST_TEST(url.address() == "192.0.2.1:20049");
    BOOST_TEST(url.device.name == "mlx5_0");
    BOOST_TEST(url.device.port == 2U);
    BOOST_TEST(url.text() == "rdma://192.0.2.1:20049?device=mlx5_0:2");
    BOOST_TEST(parse("rdma://*/?device=rxe0").text() == "rdma://*:20049?device=rxe0");
    BOOST_TEST(parse("rdma://[::1]:0?device=rxe0").port == 0U);
    for (const char* bad : {"rdma://192.0.2.1?device=", "rdma://192.0.2.1?device=rxe0:0",
                            "rdma://192.0.2.1?device=rxe0:x", "rdma://192.0.2.1?device=rxe0:1:1",
                            "rdma://192.0.2.1?device=:1", "rdma://192.0.2.1?device=rxe0&port=1"})
        BOOST_TEST((said(bad).find("device must be NAME or NAME:PORT") != std::string::npos), said(bad));
    BOOST_TEST((said("rdma://192.0.2.1?dev=rxe0").find("must be device=NAME") != std::string::npos));
    BOOST_TEST(
        (said("iwarp://192.0.2.1?device=rxe0").find("only rdma:// chooses a device") != std::string::npos));
}

BOOST_AUTO_TEST_CASE(what_can_be_done_is_asked_of_the_device_that_all_listeners_name)
{
    const auto common = [](std::initializer_list<const char*> texts) {
        std::vector<listen_url> urls;
        for (const char* text : texts)
            urls.push_back(parse(text));
        return common_device(urls);
    };
    const char* a = "rdma://192.0.2.1?device=rxe0:1";
    BOOST_TEST((common({"tcp://*", a}) == device_choice{"rxe0", 1}));
    BOOST_TEST((common({a, "rdma://192.0.2.2?device=rxe0:2"}) == device_choice{"rxe0", 0}));
    BOOST_TEST((common({a, "rdma://192.0.2.2?device=siw0"}) == device_choice{}));
    BOOST_TEST((common({a, "rdma://192.0.2.2"}) == device_choice{}));
    BOOST_TEST((common({"tcp://*", "rdma://192.0.2.2"}) == device_choice{}));
}

BOOST_AUTO_TEST_SUITE_END()
