"""PostgreSQL, the truth: roles, migrations, and one module of statements per group of tables."""
