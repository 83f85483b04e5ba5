"""The servers that the session's backend tests share."""

from tests.support.servers import redis_client, redis_port, s3_credentials, s3_port

__all__ = ["redis_client", "redis_port", "s3_credentials", "s3_port"]
